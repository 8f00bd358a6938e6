// Words and tokens, for figures whose reader types: which tokens are pieces of
// a word, how a token is called, and a list of words that are one token each.
import { field, make } from "./parts.js";
import { say, visible } from "./strings.js";

const WORD_ENDS = /[\p{L}\ufffd]$/u, WORD_BEGINS = /^[\p{L}\ufffd]/u;

/** The tokens, by their places, that go on with the word of the one before. */
export function pieces(tokenizer, ids) {
  const texts = ids.map((id) => tokenizer.decode([id]));
  return [...texts.keys()].filter((i) =>
    i > 0 && WORD_ENDS.test(texts[i - 1]) && WORD_BEGINS.test(texts[i]));
}

/** The last word that is more than one token: {word, n}; or null. */
export function splitWord(tokenizer, ids) {
  const joined = pieces(tokenizer, ids);
  if (joined.length === 0) return null;
  let first = joined.at(-1);
  while (joined.includes(first)) first--;
  const own = ids.slice(first, joined.at(-1) + 1);
  return { word: tokenizer.decode(own), n: own.length };
}

/** A text as it stands in an address. */
export function plain(text) {
  return encodeURIComponent(text).replaceAll("%20", "+");
}

/** A text in a box of one line, which takes no line ends: as signs. */
export function lined(text) {
  return text.replaceAll("\n", say("newline"));
}

/** The opposite. */
export function unlined(text) {
  return text.replaceAll(say("newline"), "\n");
}

/** A token as it is shown; a part of a letter as its bytes. */
export function nameOf(tokenizer, id) {
  const text = tokenizer.decode([id]);
  if (!text.includes("\ufffd")) return visible(text);
  return [...tokenizer.bytes[id]].map((byte) =>
    byte.charCodeAt(0).toString(16).toUpperCase()).join(" ");
}

const known = new WeakMap(); // of each tokenizer, what was asked before

/** The token of a word in the place of another token, with a space before it
 *  if that one has one; undefined if it would be several. */
export function tokenFor(tokenizer, word, other) {
  const text = tokenizer.bytes[other].startsWith(" ") ? ` ${word}` : word;
  if (!known.has(tokenizer)) known.set(tokenizer, new Map());
  const tokens = known.get(tokenizer);
  if (!tokens.has(text)) {
    const [id, ...more] = tokenizer.encode(text);
    tokens.set(text, more.length ? undefined : id);
  }
  return tokens.get(text);
}

/** A list of words by their kinds, {animals: ["dog", …], …}: choose(value) is
 *  called with what `valueOf` gives for a word; words without are left out.
 *  `first` are options before them, [[value, text], …]. */
export function wordPicker(name, first, words, valueOf, chosen, choose) {
  const option = ([value, text]) => make("option", { value,
    selected: String(value) === String(chosen) }, text);
  const list = make("select", { onchange: () => choose(list.value) },
    ...first.map(option));
  const seen = new Set(first.map(([value]) => String(value)));
  for (const [kind, group] of Object.entries(words)) {
    const options = group.map((word) => [valueOf(word), word])
      .filter(([value]) => value !== undefined && !seen.has(String(value)));
    if (options.length)
      list.append(make("optgroup", { label: kind }, ...options.map(option)));
  }
  return { list, field: field(name, list) };
}
