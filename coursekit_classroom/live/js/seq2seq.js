// The whole paper: an encoder reads, a decoder writes and looks back:
// coursekit/seq2seq.py.
import { attend } from "./attention.js";
import { Block } from "./block.js";
import { nextPositions } from "./decoder.js";
import { Encoder } from "./encoder.js";
import { MultiHeadAttention } from "./multihead.js";
import { makeNorm } from "./norm.js";
import { makePositions } from "./positions.js";
import { linear } from "./tensor.js";

/** Self-attention, then attention to the encoder's output, then a network. */
export class CrossBlock extends Block {
  constructor(config, weights, attendTo) {
    super(config, weights, attendTo);
    this.crossAttention = new MultiHeadAttention(
      config, weights.cross_attention, attendTo);
    this.crossAttentionNorm = makeNorm(config, weights.cross_attention_norm);
  }

  forward(x, memory, how) {
    x = this.sum(x, this.attentionNorm, (y) => this.attention.forward(y, how));
    x = this.sum(x, this.crossAttentionNorm,
      (y) => this.crossAttend(y, memory, how.cache));
    return this.sum(
      x, this.feedForwardNorm, (y) => this.feedForward.forward(y));
  }

  /** Attend to the memory; a cache keeps its keys and values. */
  crossAttend(y, memory, cache) {
    const cross = this.crossAttention;
    if (!cache) return cross.forward(y, { memory });
    cache.memory ??= cross.keysValues(memory);
    return cross.forward(y, { memory: cache.memory });
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
