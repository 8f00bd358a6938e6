// Several attentions side by side: coursekit/multihead.py.
import { attend } from "./attention.js";
import { linear } from "./tensor.js";

/** Cut each vector into nHeads pieces, one a head. */
export function splitHeads(x, nHeads) {
  const size = x[0].length / nHeads;
  return Array.from({ length: nHeads }, (_, h) =>
    x.map((row) => row.subarray(h * size, (h + 1) * size)));
}

/** Put the heads' pieces side by side again. */
export function mergeHeads(heads) {
  const size = heads[0][0].length;
  return heads[0].map((_, t) => {
    const row = new Float32Array(heads.length * size);
    heads.forEach((head, h) => row.set(head[t], h * size));
    return row;
  });
}

/** H attentions on H projections of the same vectors, mixed by W_O. */
export class MultiHeadAttention {
  constructor(config, weights, attendTo = attend) {
    Object.assign(this, weights); // w_q, w_k, w_v, w_o
    this.nHeads = config.n_heads;
    this.nKvHeads = config.n_kv_heads ?? config.n_heads;
    this.attend = attendTo;
  }

  /** Attend from x to a memory, its keys and values, or x itself. */
  forward(x, { memory = x, causal, rotate, bias, cache } = {}) {
    let q = splitHeads(linear(x, this.w_q), this.nHeads);
    const projected = Array.isArray(memory[0][0]);
    let [k, v] = projected ? memory : this.keysValues(memory);
    if (rotate) [q, k] = [rotate(q), rotate(k)];
    if (cache) [k, v] = cache.update(k, v);
    const heads = this.attend(q, k, v, causal, bias);
    return linear(mergeHeads(heads), this.w_o);
  }

  /** Project a sequence to its keys and values. */
  keysValues(memory) {
    const k = splitHeads(linear(memory, this.w_k), this.nKvHeads);
    const v = splitHeads(linear(memory, this.w_v), this.nKvHeads);
    return [k, v];
  }
}
