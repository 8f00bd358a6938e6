// The encoder: the same blocks, and every position sees every other:
// coursekit/encoder.py.
import { Block } from "./block.js";
import { nextPositions } from "./decoder.js";
import { TokenEmbedding } from "./embedding.js";
import { makeNorm } from "./norm.js";
import { makePositions } from "./positions.js";

/** A stack of blocks that reads a whole sequence at once. */
export class Encoder {
  constructor(config, weights, attendTo) {
    this.config = config;
    this.embedding = new TokenEmbedding(config, weights.embedding);
    this.positions = makePositions(config, weights.positions);
    this.embeddingNorm = makeNorm(
      config, weights.embedding_norm, config.embedding_norm ?? false);
    this.blocks = Object.values(weights.blocks ?? {}).map(
      (block) => new Block(config, block, attendTo));
    this.finalNorm = makeNorm(config, weights.final_norm, config.final_norm);
  }

  /** Give each token a vector that knows its context. */
  forward(ids) {
    const positions = nextPositions(ids, 0, this.config.max_len);
    let x = this.positions.forward(this.embedding.forward(ids), positions);
    x = this.embeddingNorm(x);
    const rotate = this.positions.rotation(positions);
    const bias = this.positions.bias(ids.length, ids.length);
    for (const block of this.blocks) x = block.forward(x, { rotate, bias });
    return this.finalNorm(x);
  }
}
