// An untrained GPT whose weights everybody draws alike; in Python it is
// coursekit_classroom/live/depth.py.
import { GPT } from "../decoder.js";
import { seeded } from "./parts.js";

/** The weights of minimal.py before training, all of them `times` as large. */
export class Untrained {
  constructor({ vocab, length, width, heads, blocks }, seed) {
    const random = seeded(seed);
    const std = 0.5 / Math.sqrt(width);
    const matrix = (rows, columns, size = std) =>
      Array.from({ length: rows }, () => Float32Array.from({ length: columns },
        () => size * normal(random)));
    const ones = new Float32Array(width).fill(1);
    const last = std / Math.sqrt(2 * blocks); // each block adds twice
    this.config = { vocab_size: vocab, max_len: length, d_model: width, n_heads: heads,
      activation: "gelu", positions: "learned", norm_eps: 1e-5, final_norm: true };
    this.matrices = {
      embedding: { weight: matrix(vocab, width) },
      positions: { weight: matrix(length, width) },
      blocks: Array.from({ length: blocks }, () => ({
        attention: { w_q: { weight: matrix(width, width) },
          w_k: { weight: matrix(width, width) }, w_v: { weight: matrix(width, width) },
          w_o: { weight: matrix(width, width, last) } },
        feed_forward: { w_in: { weight: matrix(4 * width, width) },
          w_out: { weight: matrix(width, 4 * width, last) } },
        attention_norm: { weight: ones }, feed_forward_norm: { weight: ones },
      })),
      final_norm: { weight: ones },
      head: { weight: matrix(vocab, width) },
    };
  }

  /** The model, with some choices of its configuration made otherwise. Its
   *  weights are those of the model that was built last. */
  build({ times = 1, attend, ...choices } = {}) {
    const config = { norm: "layernorm", norm_first: true, residual: true,
      ...this.config, ...choices };
    this.weights ??= structuredClone(this.matrices);
    if (times !== (this.times ?? 1)) scale(this.matrices, this.weights, times);
    this.times = times;
    return new GPT(config, this.weights, attend);
  }
}

/** Matrices times a factor; vectors, which are gains, stay as they are. */
function scale(from, to, times) {
  if (from instanceof Float32Array) return;
  for (const name of Object.keys(from)) {
    const isRow = Array.isArray(from) && from[name] instanceof Float32Array;
    if (!isRow) scale(from[name], to[name], times);
    else for (let i = 0; i < from[name].length; i++)
      to[name][i] = times * from[name][i];
  }
}

/** A normal number, by Box and Muller. */
function normal(random) {
  const radius = Math.sqrt(-2 * Math.log(1 - random()));
  return radius * Math.cos(2 * Math.PI * random());
}
