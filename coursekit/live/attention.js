// Scaled dot-product attention: coursekit/attention.py.
//
// Queries, keys and values are lists of heads; a head is a matrix, T rows of
// queries or S rows of keys and values.
import { causalMask } from "./masks.js";
import { dot, softmax } from "./tensor.js";

/** How much each query takes from each key: softmax(q kᵀ / √Dh). */
export function attentionWeights(q, k, causal = false, bias = null) {
  const mask = causal ? causalMask(q[0].length, k[0].length) : null;
  return q.map((head, h) => {
    const keys = shareHeads(k, q, h);
    const root = Math.sqrt(head[0].length);
    return head.map((query, t) => {
      const scores = new Float32Array(keys.length).fill(-Infinity);
      for (let s = 0; s < keys.length; s++) {
        if (mask && !mask[t][s]) continue; // hidden
        scores[s] = dot(query, keys[s]) / root + (bias ? bias(h, t, s) : 0);
      }
      return softmax(scores);
    });
  });
}

/** Mix the values, weighted by how well their keys fit the query. */
export function attend(q, k, v, causal = false, bias = null) {
  return mixValues(attentionWeights(q, k, causal, bias), v);
}

/** weights · v, head by head. */
export function mixValues(weights, v) {
  return weights.map((head, h) => {
    const values = shareHeads(v, weights, h);
    return head.map((shares) => {
      const mixed = new Float64Array(values[0].length);
      for (let s = 0; s < shares.length; s++) {
        if (shares[s] === 0) continue; // hidden by the mask
        for (let i = 0; i < mixed.length; i++)
          mixed[i] += shares[s] * values[s][i];
      }
      return new Float32Array(mixed);
    });
  });
}

/** The key/value head that serves query head h. */
function shareHeads(x, q, h) {
  return x[Math.floor((h * x.length) / q.length)];
}
