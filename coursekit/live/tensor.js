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
  const y = x.map(() => new Float32Array(weight.length));
  let t = 0;
  for (; t + 3 < x.length; t += 4) fourRows(x.slice(t), weight, y.slice(t));
  for (; t < x.length; t++) oneRow(x[t], weight, y[t]);
  if (bias)
    for (const row of y) for (let i = 0; i < bias.length; i++) row[i] += bias[i];
  return y;
}

/** Each number that is fetched serves two or four of eight sums, and no sum
 *  waits for another: three times as fast as one product after the other. */
function fourRows([a, b, c, d], weight, [ya, yb, yc, yd]) {
  for (let i = 0; i < weight.length; i += 2) {
    // An odd last row is taken twice; its copy falls outside and is dropped.
    const v = weight[i], w = weight[Math.min(i + 1, weight.length - 1)];
    let av = 0, bv = 0, cv = 0, dv = 0, aw = 0, bw = 0, cw = 0, dw = 0;
    for (let k = 0; k < a.length; k++) {
      const vk = v[k], wk = w[k], ak = a[k], bk = b[k], ck = c[k], dk = d[k];
      av += ak * vk;
      bv += bk * vk;
      cv += ck * vk;
      dv += dk * vk;
      aw += ak * wk;
      bw += bk * wk;
      cw += ck * wk;
      dw += dk * wk;
    }
    ya[i] = av, yb[i] = bv, yc[i] = cv, yd[i] = dv;
    ya[i + 1] = aw, yb[i + 1] = bw, yc[i + 1] = cw, yd[i + 1] = dw;
  }
}

/** The same for a row that comes alone, as in writing: four rows of W. */
function oneRow(row, weight, y) {
  let i = 0;
  for (; i + 3 < weight.length; i += 4) {
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
    y[i] = y0, y[i + 1] = y1, y[i + 2] = y2, y[i + 3] = y3;
  }
  for (; i < weight.length; i++) y[i] = dot(row, weight[i]);
}

/** Columns as rows. */
export function transposed(x) {
  return Array.from(x[0], (_, i) => Float32Array.from(x, (row) => row[i]));
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
