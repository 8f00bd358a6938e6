// Scaled dot-product attention: coursekit/attention.py.
//
// Queries, keys and values are lists of heads; a head is a matrix, T rows of
// queries or S rows of keys and values.
import { causalMask } from "./masks.js";
import { linear, softmax, transposed } from "./tensor.js";

/** How much each query takes from each key: softmax(q kᵀ / √Dh). */
export function attentionWeights(q, k, causal = false, bias = null) {
  const mask = causal ? causalMask(q[0].length, k[0].length) : null;
  return q.map((head, h) => {
    const keys = shareHeads(k, q, h);
    const root = Math.sqrt(head[0].length);
    const products = linear(head, { weight: keys }); // q kᵀ
    return products.map((row, t) => softmax(row.map((product, s) => {
      if (mask && !mask[t][s]) return -Infinity; // hidden
      return product / root + (bias ? bias(h, t, s) : 0);
    })));
  });
}

/** Mix the values, weighted by how well their keys fit the query. */
export function attend(q, k, v, causal = false, bias = null) {
  return mixValues(attentionWeights(q, k, causal, bias), v);
}

/** weights · v, head by head. */
export function mixValues(weights, v) {
  return weights.map((head, h) =>
    linear(head, { weight: transposed(shareHeads(v, weights, h)) }));
}

/** The key/value head that serves query head h. */
function shareHeads(x, q, h) {
  return x[Math.floor((h * x.length) / q.length)];
}
