// The text of a walk: the page's sentence, in which one of the page's words
// may stand for the first, or what the reader has typed.
const MOST = 24; // tokens: of a longer text the last are read
const LONGEST = 600; // characters

export class Texts {
  constructor(tokenizer, sentence, words, most) {
    Object.assign(this, { tokenizer, sentence, words });
    this.most = Math.min(MOST, most);
    this.known = new Map();
  }

  /** All ids of a text; of none at all, those of an empty line. */
  all(text) {
    if (!this.known.has(text)) {
      if (this.known.size > 40) this.known.clear();
      const { tokenizer } = this;
      const found = [text.slice(-LONGEST), "\n"].map((words) =>
        tokenizer.encode(tokenizer.known(words))).find((ids) => ids.length);
      this.known.set(text, found ?? [0]);
    }
    return this.known.get(text);
  }

  /** The ids that the model is given: `put` says which stand in the place of
   *  others, [[place, id], …]. */
  ids(text, put = []) {
    const ids = this.all(text).slice(-this.most);
    for (const [t, id] of put) if (t < ids.length) ids[t] = id;
    return ids;
  }

  /** The whole text, with what is put into it. */
  whole({ text, put }) {
    const all = this.all(text), ids = this.ids(text, put);
    return this.tokenizer.decode([...all.slice(0, -ids.length), ...ids]);
  }

  /** How many tokens of a text are left out. */
  cut(text) {
    return this.all(text).length - this.ids(text).length;
  }

  /** What makes the page's sentence that with another of its words; of a
   *  sentence with another number of tokens, the whole text. */
  swap(word) {
    const { sentence, words: [first] } = this;
    const text = sentence.replace(first, word);
    const [old, ids] = [this.ids(sentence), this.ids(text)];
    if (old.length !== ids.length) return { text, put: [] };
    return { text: sentence, put: [...ids.entries()].filter(([t, id]) =>
      id !== old[t]) };
  }

  /** The page's word that a state has, -1 if it has another text. */
  word({ text, put }) {
    return this.words.findIndex((word) => {
      const swapped = this.swap(word);
      return swapped.text === text
        && JSON.stringify(swapped.put) === JSON.stringify(put);
    });
  }

  /** A text and what is put into it, as an address says them: by the page's
   *  word, or the text. A text that is one of the words begins with a space. */
  toAddress(state) {
    const { sentence, words } = this, word = this.word(state);
    if (word >= 0) return [words[word], []];
    if (state.text === sentence) return [words[0], state.put];
    return [words.includes(state.text) ? ` ${state.text}` : state.text,
      state.put];
  }

  /** The opposite, of what stands in an address. */
  fromAddress(said, put) {
    if (!this.words.includes(said))
      return { text: said.trimStart() || this.sentence, put };
    const swapped = this.swap(said);
    return put.length ? { ...swapped, put } : swapped;
  }
}
