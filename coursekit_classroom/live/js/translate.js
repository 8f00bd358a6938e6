// Texts in one language in, texts in another out: coursekit/translate.py.
import { CachedSeq2SeqStepper } from "./cache.js";
import { beamSteps } from "./generation.js";

/** Translates texts with a trained model. */
export class Translator {
  constructor(model, tokenizer) {
    Object.assign(this, { model, tokenizer });
    const { "<bos>": bos, "<eos>": eos } = tokenizer.specialTokens;
    Object.assign(this, { bosId: bos, eosId: eos });
  }

  /** Turn a source into ids: its tokens, then eos. */
  encode(text) {
    return [...this.tokenizer.encode(text), this.eosId];
  }

  /** Find the target ids, without bos and eos, step by step. */
  *search(source, nBeams = 4, lengthPenalty = 1) {
    const stepper = new CachedSeq2SeqStepper(this.model, [this.bosId]);
    yield* beamSteps(stepper, source, {
      nBeams, lengthPenalty, maxNewTokens: stepper.limit,
      stopIds: [this.eosId], exhaustive: false,
    });
  }

  /** Turn target ids into text; special tokens are no text. */
  decode(ids) {
    const specials = Object.values(this.tokenizer.specialTokens);
    return this.tokenizer.decode(ids.filter((id) => !specials.includes(id)));
  }
}
