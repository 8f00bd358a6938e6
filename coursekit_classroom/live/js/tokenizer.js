// Text to token ids and back: coursekit/tokenizer.py.
//
// Bytes are written as strings with one character a byte (Latin-1), as in
// tokenizer.json: they can be joined and looked up like any string.

// GPT-2 never merges across these borders: contractions, words and numbers
// with the space before them, other signs, the remaining space.
const SPLIT = String.raw`'s|'t|'re|'ve|'m|'ll|'d`
  + String.raw`| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

// What is white space to Python, spelled out: JavaScript's \s lacks U+0085
// and has U+FEFF.
const WHITE = String.raw`\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029`
  + String.raw`\u202f\u205f\u3000`;

/** Python's pattern as a JavaScript one. */
function compile(split) {
  const source = split
    .replaceAll(String.raw`[^\s`, `[^${WHITE}`)
    .replaceAll(String.raw`\s`, `[${WHITE}]`)
    .replaceAll(String.raw`\S`, `[^${WHITE}]`);
  return new RegExp(source, "gu");
}

/** Text as UTF-8, one character a byte. */
export function utf8(text) {
  return Array.from(new TextEncoder().encode(text), (byte) =>
    String.fromCharCode(byte)).join("");
}

/** Turn one chunk into ids by replaying the merges in learned order. */
export function encodeChunk(chunk, ranks, watch = null) {
  let parts = [...chunk];
  watch?.(parts);
  while (parts.length > 1) {
    let best = null, rank = Infinity;
    for (let i = 0; i + 1 < parts.length; i++) {
      const union = parts[i] + parts[i + 1];
      const found = ranks.get(union) ?? Infinity;
      if (found < rank) [best, rank] = [union, found];
    }
    if (best === null) break;
    const merged = [];
    for (let i = 0; i < parts.length; i++) {
      const joins = i + 1 < parts.length && parts[i] + parts[i + 1] === best;
      merged.push(joins ? best : parts[i]);
      if (joins) i++;
    }
    parts = merged;
    watch?.(parts, rank);
  }
  return parts.map((part) => ranks.get(part));
}

class Tokenizer {
  constructor({ tokens, special_tokens: names }) {
    this.tokens = tokens;
    this.specialTokens = Object.fromEntries(
      names.map((name, i) => [name, tokens.length + i]));
    this.bytes = [...tokens, ...names.map(utf8)];
  }

  get vocabSize() {
    return this.bytes.length;
  }

  /** Turn ids into text: join the bytes first, then decode once. */
  decode(ids) {
    const joined = Array.from(ids, (id) => this.bytes[id]).join("");
    const bytes = Uint8Array.from(joined, (char) => char.charCodeAt(0));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  }
}

/** One token per character, numbered by code point. */
export class CharTokenizer extends Tokenizer {
  constructor(fields) {
    super(fields);
    this.ids = new Map(fields.tokens.map((token, i) => [token, i]));
  }

  encode(text) {
    return [...text].map((char) => {
      const id = this.ids.get(utf8(char));
      if (id === undefined)
        throw new RangeError(`this model does not know the sign ${char}`);
      return id;
    });
  }

  /** What of a text can be encoded. */
  known(text) {
    return [...text].filter((char) => this.ids.has(utf8(char))).join("");
  }
}

/** Byte-level BPE with GPT-2's split: encodes every text. */
export class BPETokenizer extends Tokenizer {
  constructor(fields) {
    super(fields);
    this.split = compile(fields.split ?? SPLIT);
    this.ranks = new Map(fields.tokens.map((token, i) => [token, i]));
    this.seen = new Map(); // most words come again
  }

  /** Cut text where merges never cross. */
  chunks(text) {
    return text.match(this.split) ?? [];
  }

  encode(text) {
    return this.chunks(text).flatMap((chunk) => {
      if (this.seen.size > 9999) this.seen.clear();
      if (!this.seen.has(chunk))
        this.seen.set(chunk, encodeChunk(utf8(chunk), this.ranks));
      return this.seen.get(chunk);
    });
  }

  known(text) {
    return text;
  }
}

/** Build a tokenizer from what tokenizer.json holds. */
export function tokenizerFromDict(fields) {
  const kinds = { characters: CharTokenizer, "byte-level BPE": BPETokenizer };
  if (!(fields.type in kinds))
    throw new TypeError(`no tokenizer of the type ${fields.type} runs here`);
  return new kinds[fields.type](fields);
}
