// The two-layer network at each position: coursekit/feedforward.py.
import { linear } from "./tensor.js";

const TERMS = [-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
  0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277];

/** The error function, to float32's precision (Numerical Recipes' erfc). */
export function erf(x) {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  let sum = 0;
  for (let i = TERMS.length - 1; i >= 0; i--) sum = TERMS[i] + t * sum;
  const tail = t * Math.exp(-x * x + sum);
  return x >= 0 ? 1 - tail : tail - 1;
}

export const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x
    * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** Widen, bend, narrow: the same network at every position. */
export class FeedForward {
  constructor(config, weights) {
    Object.assign(this, weights); // w_in, w_out
    this.activation = ACTIVATIONS[config.activation];
  }

  forward(x) {
    const inner = linear(x, this.w_in).map((row) => row.map(this.activation));
    return linear(inner, this.w_out);
  }
}

/** A network whose inner units are opened by a gate. */
export class SwiGLU {
  constructor(config, weights) {
    Object.assign(this, weights); // w_gate, w_in, w_out
  }

  forward(x) {
    const gates = linear(x, this.w_gate);
    const inner = linear(x, this.w_in).map((row, t) =>
      row.map((value, i) => value * ACTIVATIONS.silu(gates[t][i])));
    return linear(inner, this.w_out);
  }
}

export function makeFeedForward(config, weights) {
  const kind = config.activation === "swiglu" ? SwiGLU : FeedForward;
  return new kind(config, weights);
}
