// Each operation of minimal.py on flat arrays, and behind it how it passes a
// gradient on: dy is ∂L/∂y, and a gradient is added to what is already there,
// as loss.backward() does.
import { erf } from "../feedforward.js";
import { flipped, product } from "./matmul.js";

const LEFT = [], RIGHT = []; // what transposed matrices are written to

/** y = x Wᵀ: x is (n, i), W is (o, i). */
export function linearForward(y, x, W, n, o, i) {
  product(y, x, W, n, o, i);
}

/** dx += dy W, dW += dyᵀ x. */
export function linearBackward(dx, dW, dy, x, W, n, o, i) {
  product(dx, dy, flipped(W, o, i, RIGHT), n, i, o, true);
  product(dW, flipped(dy, n, o, LEFT), flipped(x, n, i, RIGHT), o, i, n, true);
}

/** x̂ = (x − mean) / √(variance + ε), y = g x̂, for each of n rows. */
export function normForward(y, centered, scales, x, gain, n, size) {
  for (let t = 0; t < n; t++) {
    const from = t * size;
    let mean = 0, variance = 0;
    for (let i = 0; i < size; i++) mean += x[from + i];
    mean /= size;
    for (let i = 0; i < size; i++) variance += (x[from + i] - mean) ** 2;
    scales[t] = 1 / Math.sqrt(variance / size + 1e-5);
    for (let i = 0; i < size; i++) {
      centered[from + i] = (x[from + i] - mean) * scales[t];
      y[from + i] = gain[i] * centered[from + i];
    }
  }
}

/** dg += Σ dy x̂; with u = g dy,
 *  dx += (u − mean(u) − x̂ mean(u x̂)) / √(variance + ε). */
export function normBackward(dx, dgain, dy, centered, scales, gain, n, size) {
  for (let t = 0; t < n; t++) {
    const from = t * size;
    let mean = 0, along = 0;
    for (let i = 0; i < size; i++) {
      const at = from + i, u = gain[i] * dy[at];
      dgain[i] += dy[at] * centered[at];
      mean += u / size;
      along += u * centered[at] / size;
    }
    for (let i = 0; i < size; i++) {
      const at = from + i, u = gain[i] * dy[at];
      dx[at] += (u - mean - centered[at] * along) * scales[t];
    }
  }
}

/** y = x Φ(x): Φ, the normal distribution, is kept for the backward pass. */
export function geluForward(y, normal, x) {
  for (let i = 0; i < x.length; i++) {
    normal[i] = 0.5 * (1 + erf(x[i] / Math.SQRT2));
    y[i] = x[i] * normal[i];
  }
}

/** dx += dy (Φ(x) + x φ(x)), where φ(x) = exp(−x²/2) / √(2π) is Φ's slope. */
export function geluBackward(dx, dy, normal, x) {
  const root = Math.sqrt(2 * Math.PI);
  for (let i = 0; i < x.length; i++)
    dx[i] += dy[i] * (normal[i] + x[i] * Math.exp(-x[i] * x[i] / 2) / root);
}

/** P = softmax(q kᵀ / √Dh) over keys s ≤ t, y = P v: for each of `sizes.batch`
 *  texts and each head, whose part of a row of D begins at h · Dh. */
export function attentionForward(y, P, q, k, v, { batch, T, D, H }) {
  const Dh = D / H, root = Math.sqrt(Dh);
  y.fill(0);
  for (let b = 0; b < batch; b++) for (let h = 0; h < H; h++)
    for (let t = 0; t < T; t++) {
      const row = ((b * H + h) * T + t) * T;
      const at = (b * T + t) * D + h * Dh;
      let largest = -Infinity, sum = 0;
      for (let s = 0; s <= t; s++) { // the future is not computed at all
        const key = (b * T + s) * D + h * Dh;
        let score = 0;
        for (let i = 0; i < Dh; i++) score += q[at + i] * k[key + i];
        P[row + s] = score / root;
        if (P[row + s] > largest) largest = P[row + s];
      }
      for (let s = 0; s <= t; s++)
        sum += (P[row + s] = Math.exp(P[row + s] - largest));
      for (let s = 0; s <= t; s++) {
        const value = (b * T + s) * D + h * Dh, share = (P[row + s] /= sum);
        for (let i = 0; i < Dh; i++) y[at + i] += share * v[value + i];
      }
    }
}

/** dv += Pᵀ dy; with dP = dy vᵀ, the scores' gradient is
 *  dS = P (dP − Σ P dP) / √Dh, and dq += dS k, dk += dSᵀ q. */
export function attentionBackward(dq, dk, dv, dy, P, q, k, v,
  { batch, T, D, H }) {
  const Dh = D / H, root = Math.sqrt(Dh), dP = new Float64Array(T);
  for (let b = 0; b < batch; b++) for (let h = 0; h < H; h++)
    for (let t = 0; t < T; t++) {
      const row = ((b * H + h) * T + t) * T;
      const at = (b * T + t) * D + h * Dh;
      let mean = 0;
      for (let s = 0; s <= t; s++) {
        const value = (b * T + s) * D + h * Dh, share = P[row + s];
        let sum = 0;
        for (let i = 0; i < Dh; i++) {
          sum += dy[at + i] * v[value + i];
          dv[value + i] += share * dy[at + i];
        }
        dP[s] = sum;
        mean += share * sum;
      }
      for (let s = 0; s <= t; s++) {
        const key = (b * T + s) * D + h * Dh;
        const dS = P[row + s] * (dP[s] - mean) / root;
        for (let i = 0; i < Dh; i++) {
          dq[at + i] += dS * k[key + i];
          dk[key + i] += dS * q[at + i];
        }
      }
    }
}

/** Mean of −ln p(target) over n rows of V logits, which become its gradient,
 *  (p − y) / n, where y is 1 at the target. */
export function lossAndGradient(logits, targets, n, V) {
  let total = 0;
  for (let t = 0; t < n; t++) {
    const from = t * V, target = from + targets[t];
    let largest = -Infinity, sum = 0;
    for (let i = from; i < from + V; i++)
      if (logits[i] > largest) largest = logits[i];
    for (let i = from; i < from + V; i++) sum += Math.exp(logits[i] - largest);
    total += largest + Math.log(sum) - logits[target];
    for (let i = from; i < from + V; i++)
      logits[i] = Math.exp(logits[i] - largest) / sum / n;
    logits[target] -= 1 / n;
  }
  return total / n;
}
