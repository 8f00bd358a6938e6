// The loss of one token: coursekit/loss.py.
import { logSoftmax } from "./tensor.js";

/** −ln p(target), in nats. */
export function crossEntropy(logits, target) {
  return -logSoftmax(logits)[target];
}

/** How the loss changes with each logit: p − y, where y is 1 at the target. */
export function lossGradient(logits, target) {
  return logSoftmax(logits).map((logP, id) =>
    Math.exp(logP) - (id === target ? 1 : 0));
}
