// The norms: coursekit/norm.py.

/** Give a row mean 0 and variance 1, then a learned scale and shift. */
export function layerNorm(row, weight, bias, eps) {
  let mean = 0, variance = 0;
  const n = row.length;
  for (let i = 0; i < n; i++) mean += row[i] / n;
  for (let i = 0; i < n; i++) variance += (row[i] - mean) ** 2 / n;
  const scale = 1 / Math.sqrt(variance + eps);
  const y = new Float32Array(n);
  for (let i = 0; i < n; i++)
    y[i] = (row[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
  return y;
}

/** Give a row a mean square of 1, then a learned scale. */
export function rmsNorm(row, weight, eps) {
  let square = 0;
  for (const value of row) square += value ** 2 / row.length;
  const scale = 1 / Math.sqrt(square + eps);
  return row.map((value, i) => value * scale * weight[i]);
}

/** The norm that the configuration names, with its weights as fields. */
export function makeNorm(config, weights, wanted = true) {
  const eps = config.norm_eps;
  if (!wanted || config.norm === "none") return (x) => x;
  const { weight, bias } = weights, centered = config.norm !== "rmsnorm";
  const norm = centered ? (row) => layerNorm(row, weight, bias, eps)
    : (row) => rmsNorm(row, weight, eps);
  return Object.assign((x) => x.map(norm), { weight, bias, eps, centered });
}
