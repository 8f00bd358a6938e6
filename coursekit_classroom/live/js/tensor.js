// What the engine needs of what PyTorch gives: matrices and two products.
//
// A matrix is a list of its rows, and a row is a Float32Array: x[t][i].
// Sums are formed in float64, as JavaScript counts, and kept in float32.

/** The sum of the products of two rows: how well they agree. */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** x Wᵀ + b: each row of x against each row of W, as torch's nn.Linear. */
export function linear(x, { weight, bias }) {
  const n = weight.length;
  return x.map((row) => {
    const y = new Float32Array(n);
    let i = 0;
    // Four rows of W at a time: each number of the row is fetched once for
    // all four, and none of the four sums waits for another.
    for (; i + 3 < n; i += 4) {
      const w0 = weight[i], w1 = weight[i + 1];
      const w2 = weight[i + 2], w3 = weight[i + 3];
      let y0 = 0, y1 = 0, y2 = 0, y3 = 0;
      for (let k = 0; k < row.length; k++) {
        const value = row[k];
        y0 += value * w0[k];
        y1 += value * w1[k];
        y2 += value * w2[k];
        y3 += value * w3[k];
      }
      y[i] = y0;
      y[i + 1] = y1;
      y[i + 2] = y2;
      y[i + 3] = y3;
    }
    for (; i < n; i++) y[i] = dot(row, weight[i]);
    if (bias) for (let j = 0; j < n; j++) y[j] += bias[j];
    return y;
  });
}

/** Columns as rows. */
export function transposed(x) {
  const y = Array.from(x[0], () => new Float32Array(x.length));
  for (let t = 0; t < x.length; t++)
    for (let i = 0; i < y.length; i++) y[i][t] = x[t][i];
  return y;
}

/** x + y, row by row. */
export function add(x, y) {
  return x.map((row, t) => {
    const sum = new Float32Array(row.length);
    for (let i = 0; i < sum.length; i++) sum[i] = row[i] + y[t][i];
    return sum;
  });
}

/** Scores to shares that sum to 1; −∞ gets none. */
export function softmax(scores) {
  let largest = -Infinity, sum = 0;
  for (let i = 0; i < scores.length; i++)
    if (scores[i] > largest) largest = scores[i];
  const shares = new Float32Array(scores.length);
  // Nothing may be seen: no shares at all, rather than NaN.
  if (largest === -Infinity) return shares;
  for (let i = 0; i < scores.length; i++) {
    shares[i] = Math.exp(scores[i] - largest);
    sum += shares[i];
  }
  for (let i = 0; i < scores.length; i++) shares[i] /= sum;
  return shares;
}

/** ln softmax, in float64. */
export function logSoftmax(scores) {
  let largest = -Infinity;
  for (const score of scores) if (score > largest) largest = score;
  let sum = 0;
  for (const score of scores) sum += Math.exp(score - largest);
  const norm = largest + Math.log(sum);
  return Float64Array.from(scores, (score) => score - norm);
}
