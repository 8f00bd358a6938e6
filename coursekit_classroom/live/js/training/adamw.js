// The training loop's two rules: coursekit/minimal.py, chapter 11.

/** Rises for `warmup` steps, then falls to a tenth along a cosine. */
export function learningRate(step, steps, peak, warmup = 100) {
  if (step < warmup) return peak * (step + 1) / warmup;
  const progress = (step + 1 - warmup) / (steps - warmup);
  return peak * (0.1 + 0.9 * (1 + Math.cos(Math.PI * progress)) / 2);
}

/** Scale a gradient that is longer than `most` down to that length, as
 *  torch.nn.utils.clip_grad_norm_; return the length that it had. */
export function clipGradient(gradient, most = 1) {
  let square = 0;
  for (let i = 0; i < gradient.length; i++) square += gradient[i] * gradient[i];
  const length = Math.sqrt(square), factor = most / (length + 1e-6);
  if (factor < 1)
    for (let i = 0; i < gradient.length; i++) gradient[i] *= factor;
  return length;
}

/** One update, the `step`-th from 1, of the weights w from `from` to `to`:
 *
 *      m ← β₁ m + (1 − β₁) g         v ← β₂ v + (1 − β₂) g²
 *      w ← w − η (m̂ / (√v̂ + ε) + λ w),   m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ)
 */
export function adamW({ w, g, m, v }, from, to, step, rate, decay) {
  const beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  const whole1 = 1 - beta1 ** step, whole2 = 1 - beta2 ** step;
  for (let i = from; i < to; i++) {
    m[i] = beta1 * m[i] + (1 - beta1) * g[i];
    v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    w[i] -= rate * (m[i] / whole1 / (Math.sqrt(v[i] / whole2) + eps)
      + decay * w[i]);
  }
}
