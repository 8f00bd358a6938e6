// Tokens to vectors, and back: coursekit/embedding.py.
import { linear } from "./tensor.js";

/** A table with one row a token, read forward and, if tied, backward. */
export class TokenEmbedding {
  constructor(config, weights) {
    this.weight = weights.weight;
    this.factor = config.scale_embedding ? Math.sqrt(config.d_model) : 1;
  }

  /** Look up one row for each token. */
  forward(ids) {
    return ids.map((id) => this.weight[id].map((value) => value * this.factor));
  }

  /** Compare vectors with every row of the table (weight tying). */
  unembed(x) {
    return linear(x, { weight: this.weight });
  }
}
