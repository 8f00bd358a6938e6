// The whole paper: an encoder reads, a decoder writes and looks back:
// coursekit/seq2seq.py.
import { attend } from "./attention.js";
import { nextPositions } from "./decoder.js";
import { Encoder } from "./encoder.js";
import { makeFeedForward } from "./feedforward.js";
import { MultiHeadAttention, splitHeads } from "./multihead.js";
import { makeNorm, Residual } from "./norm.js";
import { makePositions } from "./positions.js";
import { linear } from "./tensor.js";

/** Self-attention, then attention to the encoder's output, then a network. */
export class CrossBlock {
  constructor(config, weights, attendTo) {
    this.attention = new MultiHeadAttention(
      config, weights.attention, attendTo);
    this.aroundAttention = new Residual(config, weights.around_attention);
    this.crossAttention = new MultiHeadAttention(
      config, weights.cross_attention, attendTo);
    this.aroundCrossAttention = new Residual(
      config, weights.around_cross_attention);
    this.feedForward = makeFeedForward(config, weights.feed_forward);
    this.aroundFeedForward = new Residual(config, weights.around_feed_forward);
  }

  forward(x, memory, how) {
    x = this.aroundAttention.forward(
      x, (y) => this.attention.forward(y, how));
    x = this.aroundCrossAttention.forward(
      x, (y) => this.look(y, memory, how.cache));
    return this.aroundFeedForward.forward(x, (y) => this.feedForward.forward(y));
  }

  /** Attend to the memory; a cache keeps its keys and values. */
  look(y, memory, cache) {
    const cross = this.crossAttention;
    if (!cache) return cross.forward(y, { memory });
    cache.memory ??= cross.keysValues(memory);
    const q = splitHeads(linear(y, cross.w_q), cross.nHeads);
    return cross.mix(q, ...cache.memory);
  }
}

/** Encoder and decoder, with one table of tokens for both and the head. */
export class Transformer {
  constructor(config, weights, attendTo = attend) {
    this.config = config;
    this.encoder = new Encoder(config, weights.encoder, attendTo);
    this.embedding = this.encoder.embedding;
    this.positions = makePositions(config, weights.positions);
    this.blocks = Object.values(weights.blocks).map(
      (block) => new CrossBlock(config, block, attendTo));
    this.finalNorm = makeNorm(config, weights.final_norm, config.final_norm);
    this.head = weights.head;
  }

  /** Predict each next target token from the source and the prefix. */
  forward(src, tgt) {
    return this.decode(tgt, this.encode(src));
  }

  /** Read the source. */
  encode(src) {
    return this.encoder.forward(src);
  }

  /** Write. */
  decode(tgt, memory, cache = null) {
    const nOld = cache?.[0]?.length ?? 0;
    const positions = nextPositions(tgt, nOld, this.config.max_len);
    let x = this.positions.forward(this.embedding.forward(tgt), positions);
    const rotate = this.positions.rotation(positions);
    const bias = this.positions.bias(tgt.length, nOld + tgt.length);
    this.blocks.forEach((block, i) => {
      const how = { causal: true, rotate, bias, cache: cache?.[i] };
      x = block.forward(x, memory, how);
    });
    x = this.finalNorm(x);
    return this.head ? linear(x, this.head) : this.embedding.unembed(x);
  }
}
