// GPT: coursekit/decoder.py. One text at a time, no batch.
import { attend } from "./attention.js";
import { Block } from "./block.js";
import { TokenEmbedding } from "./embedding.js";
import { makeNorm } from "./norm.js";
import { makePositions } from "./positions.js";
import { linear } from "./tensor.js";

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
