// The block, and GPT: coursekit/decoder.py. One text at a time, no batch.
import { attend } from "./attention.js";
import { TokenEmbedding } from "./embedding.js";
import { makeFeedForward } from "./feedforward.js";
import { MultiHeadAttention } from "./multihead.js";
import { makeNorm, Residual } from "./norm.js";
import { makePositions } from "./positions.js";
import { linear } from "./tensor.js";

/** Attention between positions, then a network at each of them. */
export class Block {
  constructor(config, weights, attendTo) {
    this.attention = new MultiHeadAttention(
      config, weights.attention, attendTo);
    this.aroundAttention = new Residual(config, weights.around_attention);
    if (config.d_ff === 0) return;
    this.feedForward = makeFeedForward(config, weights.feed_forward);
    this.aroundFeedForward = new Residual(config, weights.around_feed_forward);
  }

  forward(x, how) {
    x = this.aroundAttention.forward(x, (y) => this.attention.forward(y, how));
    if (!this.feedForward) return x;
    return this.aroundFeedForward.forward(x, (y) => this.feedForward.forward(y));
  }
}

/** A decoder-only transformer: ids in, logits of each next token out. */
export class GPT {
  constructor(config, weights, attendTo = attend) {
    this.config = config;
    this.embedding = new TokenEmbedding(config, weights.embedding);
    this.positions = makePositions(config, weights.positions);
    this.blocks = Object.values(weights.blocks ?? {}).map(
      (block) => new Block(config, block, attendTo));
    this.finalNorm = makeNorm(config, weights.final_norm, config.final_norm);
    this.head = weights.head;
  }

  forward(ids, cache = null) {
    return this.logits(this.hidden(ids, cache));
  }

  /** The residual stream after the last block, before the final norm. */
  hidden(ids, cache = null) {
    const nOld = cache?.[0]?.length ?? 0;
    const positions = nextPositions(ids, nOld, this.config.max_len);
    let x = this.positions.forward(this.embedding.forward(ids), positions);
    const rotate = this.positions.rotation(positions);
    const bias = this.positions.bias(ids.length, nOld + ids.length);
    this.blocks.forEach((block, i) => {
      const how = { causal: true, rotate, bias, cache: cache?.[i] };
      x = block.forward(x, how);
    });
    return x;
  }

  /** Read the next token's logits off the residual stream. */
  logits(x) {
    x = this.finalNorm(x);
    return this.head ? linear(x, this.head) : this.embedding.unembed(x);
  }
}

/** Where new tokens stand: after the old ones. */
export function nextPositions(ids, nOld, maxLen) {
  if (ids.length === 0 || nOld + ids.length > maxLen)
    throw new RangeError(`a sequence has 1 to ${maxLen} tokens: `
      + `got ${nOld + ids.length}`);
  return ids.map((_, t) => nOld + t);
}
