// Keys and values of what was read before: coursekit/cache.py.

/** What one block keeps: a list of rows for each key/value head. */
export class LayerCache {
  constructor() {
    this.k = null;
    this.v = null;
    this.memory = null;
  }

  /** Number of key positions filled so far. */
  get length() {
    return this.k?.[0].length ?? 0;
  }

  /** Append keys and values; return all so far. */
  update(k, v) {
    const append = (old, rows) =>
      rows.map((head, g) => (old ? old[g].concat(head) : head));
    this.k = append(this.k, k);
    this.v = append(this.v, v);
    return [this.k, this.v];
  }

  /** A second cache with the same rows, which nobody changes. */
  copy() {
    return Object.assign(new LayerCache(), this);
  }

  /** A second cache with the first n positions. */
  first(n) {
    const cut = (rows) => rows?.map((head) => head.slice(0, n)) ?? null;
    return Object.assign(new LayerCache(), { k: cut(this.k), v: cut(this.v) });
  }
}

/** Make an empty cache for each decoder layer of a model. */
export function makeCache(model) {
  return model.blocks.map(() => new LayerCache());
}

/** Steps a GPT with a cache: one prompt, and as many rows as beams. */
export class CachedStepper {
  constructor(model, window = model.config.max_len,
    keep = Math.floor(window / 2)) {
    Object.assign(this, { model, window, keep });
  }

  /** Read the prompt; return the logits of the first new token. */
  prefill(prompt) {
    this.rows = [this.read(prompt.slice(-this.window))];
    return this.rows.map((row) => row.logits);
  }

  /** Read another prompt; what it begins with in common is kept. */
  reread(prompt) {
    const ids = prompt.slice(-this.window);
    const { ids: old, cache } = this.rows?.[0]
      ?? { ids: [], cache: makeCache(this.model) };
    let n = 0; // the last token is read again, for its logits
    while (n < ids.length - 1 && ids[n] === old[n]) n++;
    this.rows = [this.read(
      ids.slice(n), ids.slice(0, n), cache.map((layer) => layer.first(n)))];
    return this.rows.map((row) => row.logits);
  }

  /** Append a token to each row; compute that token alone. */
  step(tokens) {
    this.rows = this.rows.map(({ ids, cache }, i) => {
      if (ids.length >= this.window) // full: make room, and read it again
        return this.read([...ids.slice(-this.keep || ids.length), tokens[i]]);
      return this.read([tokens[i]], ids, cache);
    });
    return this.rows.map((row) => row.logits);
  }

  /** Let row i go on from what is now row index[i]. */
  reorder(index) {
    this.rows = index.map((i) => this.rows[i]);
  }

  /** Run the model over new tokens; nothing old is changed. */
  read(tokens, ids = [], old = makeCache(this.model)) {
    const cache = old.map((layer) => layer.copy());
    const x = this.model.hidden(tokens, cache);
    const [logits] = this.model.logits(x.slice(-1));
    return { ids: [...ids, ...tokens], cache, logits };
  }
}

/** Steps a Transformer with a cache, cross-attention included. */
export class CachedSeq2SeqStepper {
  constructor(model, start) {
    Object.assign(this, { model, start });
  }

  /** Most tokens a target can get: the last need not be read. */
  get limit() {
    return this.model.config.max_len - this.start.length + 1;
  }

  prefill(source) {
    this.memory = this.model.encode(source);
    this.rows = [this.read(this.start, makeCache(this.model))];
    return this.rows.map((row) => row.logits);
  }

  step(tokens) {
    this.rows = this.rows.map(({ cache }, i) => this.read([tokens[i]], cache));
    return this.rows.map((row) => row.logits);
  }

  reorder(index) {
    this.rows = index.map((i) => this.rows[i]);
  }

  read(tokens, old) {
    const cache = old.map((layer) => layer.copy());
    const logits = this.model.decode(tokens, this.memory, cache).at(-1);
    return { cache, logits };
  }
}
