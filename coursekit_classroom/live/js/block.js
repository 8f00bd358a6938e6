// The block: coursekit/block.py. One text at a time, no batch.
import { makeFeedForward } from "./feedforward.js";
import { MultiHeadAttention } from "./multihead.js";
import { makeNorm } from "./norm.js";
import { add } from "./tensor.js";

/** Attention between positions, then a network at each of them: two sums. */
export class Block {
  constructor(config, weights, attendTo) {
    this.normFirst = config.norm_first;
    this.residual = config.residual;
    this.attention = new MultiHeadAttention(
      config, weights.attention, attendTo);
    this.attentionNorm = makeNorm(config, weights.attention_norm);
    if (config.d_ff === 0) return;
    this.feedForward = makeFeedForward(config, weights.feed_forward);
    this.feedForwardNorm = makeNorm(config, weights.feed_forward_norm);
  }

  forward(x, how) {
    x = this.sum(x, this.attentionNorm, (y) => this.attention.forward(y, how));
    if (!this.feedForward) return x;
    return this.sum(
      x, this.feedForwardNorm, (y) => this.feedForward.forward(y));
  }

  /** x + part(norm(x)), or norm(x + part(x)). */
  sum(x, norm, part) {
    let y = part(this.normFirst ? norm(x) : x);
    if (this.residual) y = add(x, y);
    return this.normFirst ? y : norm(y);
  }
}
