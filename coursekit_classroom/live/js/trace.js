// A number of a watched GPT as the sum that it is, term by term, so that one
// can follow it back: from a logit to a token in three steps.
//
// A node names a number by a word and places that count from 0: ["q", t, b, h,
// i] is dimension i of the query of token t, in head h of block b. A depth is
// how many parts have written into x: two for each block.
import { dot } from "./tensor.js";

/** A node as {value, terms}, or null if there is no such number.
 *
 *  The terms sum to the value (of a hidden unit to `inner`, what GELU is
 *  given). Each is {factors, value, from, at}: their product, the node that
 *  the first of them is, and of which token, head or unit it comes. */
export function expand(model, states, node) {
  const [kind, ...places] = node ?? [];
  const [n, sum] = KINDS.get(kind) ?? [];
  const isWhole = (place) => Number.isInteger(place) && place >= 0;
  if (places.length !== n || !places.every(isWhole)) return null;
  try {
    const found = sum(model, states, ...places);
    return Number.isFinite(found.value) ? found : null;
  } catch (error) {
    if (error instanceof TypeError) return null; // such a place is not there
    throw error;
  }
}

/** The products of two rows. */
function products(a, b, from) {
  return Array.from(a, (value, i) =>
    ({ factors: [value, b[i]], value: value * b[i], from: from(i), at: { i } }));
}

/** What a bias adds, if there is one. */
function shift(bias, i) {
  return bias ? [{ factors: [bias[i]], value: bias[i], from: null,
    at: { bias: true } }] : [];
}

/** x after `depth` parts. */
function stream({ x, blocks }, depth) {
  if (depth === 0) return x;
  const block = blocks[(depth - 1) >> 1];
  return depth % 2 ? block.middle : block.output;
}

/** All that was added up to x, as [node's beginning, row]. */
function sources(states, t, depth) {
  let found = [[["E", t], states.embedded[t]], [["P", t], states.positions[t]]];
  for (let part = 0; part < depth; part++) {
    const b = part >> 1, { attended, written } = states.blocks[b];
    if (part % 2) found.push([["net", t, b], written[t]]);
    else {
      if (states.changes.cut?.includes(b)) found = []; // no + is there
      found.push([["att", t, b], attended[t]]);
    }
  }
  return found;
}

function x(_, states, t, depth, i) {
  const terms = sources(states, t, depth).map(([[kind, ...at], row]) => ({
    factors: [row[i]], value: row[i], from: [kind, ...at, i],
    at: { source: kind, b: at[1] } }));
  return { value: stream(states, depth)[t][i], terms };
}

/** The norm that reads x at a depth, as what it does to one row: with its
 *  mean and its scale fixed, it is a sum like any other. */
function normOf(model, states, t, depth) {
  const block = model.blocks[depth >> 1];
  const norm = !block ? model.finalNorm
    : depth % 2 ? block.feedForwardNorm : block.attentionNorm;
  const row = stream(states, depth)[t], { weight, bias, centered, eps } = norm;
  const mean = centered ? row.reduce((sum, value) => sum + value, 0) / row.length : 0;
  const square = row.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const scale = weight ? 1 / Math.sqrt(square / row.length + eps) : 1;
  const gains = Float64Array.from(row, (_, i) => scale * (weight?.[i] ?? 1));
  return { row, mean, gains, bias, out: norm([row])[0] };
}

function norm(model, states, t, depth, i) {
  const { row, mean, gains, bias, out } = normOf(model, states, t, depth);
  const own = { factors: [row[i], gains[i]], value: row[i] * gains[i],
    from: ["x", t, depth, i], at: { i } };
  const less = { factors: [-mean, gains[i]], value: -mean * gains[i],
    from: null, at: { mean: true } };
  return { value: out[i], terms: [own, ...(mean ? [less] : []),
    ...shift(bias, i)] };
}

/** How much of a logit a row is that was added to x: row · direction. */
function direction(model, states, t, id) {
  const { gains, bias, mean, row } = normOf(
    model, states, t, 2 * states.blocks.length);
  const { weight, bias: shifts } = model.head ?? model.embedding;
  const read = gains.map((gain, i) => gain * weight[id][i]);
  // The norm takes each row's mean from it.
  const less = mean ? read.reduce((sum, value) => sum + value, 0) / row.length : 0;
  const fixed = (bias ? dot(bias, weight[id]) : 0) + (shifts?.[id] ?? 0);
  return { along: read.map((value) => value - less), fixed };
}

function logit(model, states, t, id) {
  const { along, fixed } = direction(model, states, t, id);
  const terms = sources(states, t, 2 * states.blocks.length).map(
    ([[kind, , b], row]) => {
      const value = dot(row, along);
      const from = b === undefined ? [kind, t] : [`${kind}logit`, t, id, b];
      return { factors: [value], value, from, at: { source: kind, b, t } };
    });
  return { value: states.logits[t][id],
    terms: [...terms, ...(fixed ? shift([fixed], 0) : [])] };
}

const isMuted = (row) => row.every((value) => value === 0);

/** What every head brought from every token, read along a direction. */
function looks(model, states, t, b, along) {
  const { weights, v, heads } = states.blocks[b];
  const { weight, bias } = model.blocks[b].attention.w_o;
  const size = v[0][0].length;
  const read = Float64Array.from(weight[0], (_, j) =>
    weight.reduce((sum, row, i) => sum + row[j] * along[i], 0));
  const terms = weights.flatMap((map, h) => Array.from(map[t], (share, s) => {
    const brought = isMuted(heads[h][t]) ? 0
      : dot(v[h][s], read.subarray(h * size, (h + 1) * size));
    return { factors: [share, brought], value: share * brought,
      from: ["score", t, b, h, s], at: { h, s } };
  }));
  return [...terms, ...(bias ? shift([dot(bias, along)], 0) : [])];
}

/** What every hidden unit wrote, read along a direction. */
function units(model, states, t, b, along) {
  const { weight, bias } = model.blocks[b].feedForward.w_out;
  const { active } = states.blocks[b];
  const read = Float64Array.from(active[t], (_, u) =>
    weight.reduce((sum, row, i) => sum + row[u] * along[i], 0));
  return [...products(active[t], read, (u) => ["unit", t, b, u]),
    ...(bias ? shift([dot(bias, along)], 0) : [])];
}

const only = (n, i) => new Float64Array(n).fill(1, i, i + 1);

function attlogit(model, states, t, id, b) {
  const { along } = direction(model, states, t, id);
  return { value: dot(states.blocks[b].attended[t], along),
    terms: looks(model, states, t, b, along) };
}

function netlogit(model, states, t, id, b) {
  const { along } = direction(model, states, t, id);
  return { value: dot(states.blocks[b].written[t], along),
    terms: units(model, states, t, b, along) };
}

function att(model, states, t, b, i) {
  const row = states.blocks[b].attended[t];
  return { value: row[i],
    terms: looks(model, states, t, b, only(row.length, i)) };
}

function net(model, states, t, b, i) {
  const row = states.blocks[b].written[t];
  return { value: row[i],
    terms: units(model, states, t, b, only(row.length, i)) };
}

function unit(model, states, t, b, u) {
  const { normed2, hidden, active } = states.blocks[b];
  const { weight, bias } = model.blocks[b].feedForward.w_in;
  return { value: active[t][u], inner: hidden[t][u], terms: [
    ...products(normed2[t], weight[u], (i) => ["norm", t, 2 * b + 1, i]),
    ...shift(bias, u)] };
}

/** A query, a key or a value. */
const made = (kind) => (model, states, t, b, h, i) => {
  const { normed, [kind]: heads } = states.blocks[b];
  const { weight, bias } = model.blocks[b].attention[`w_${kind}`];
  const row = h * heads[h][t].length + i;
  return { value: heads[h][t][i], terms: [
    ...products(normed[t], weight[row], (d) => ["norm", t, 2 * b, d]),
    ...shift(bias, row)] };
};

function score(_, states, t, b, h, s) {
  const { q, k, scores } = states.blocks[b], query = q[h][t];
  const root = states.changes.root === false ? 1 : Math.sqrt(query.length);
  return { value: scores[h][t][s],
    terms: products(query, k[h][s].map((value) => value / root),
      (i) => ["q", t, b, h, i]) };
}

function mix(_, states, t, b, h, i) {
  const { weights, v, heads } = states.blocks[b], row = heads[h][t];
  const terms = Array.from(weights[h][t], (share, s) => {
    const value = isMuted(row) ? 0 : v[h][s][i];
    return { factors: [share, value], value: share * value,
      from: ["v", s, b, h, i], at: { h, s } };
  });
  return { value: row[i], terms };
}

/** A number that was learned, and is no sum. */
const learned = (table) => (_, states, t, i) =>
  ({ value: states[table][t][i], terms: [] });

// How many places a node of each kind has, and what it is the sum of.
const KINDS = new Map(Object.entries({ logit: [2, logit],
  attlogit: [3, attlogit], netlogit: [3, netlogit], x: [3, x], norm: [3, norm],
  att: [3, att], net: [3, net], unit: [3, unit], q: [4, made("q")],
  k: [4, made("k")], v: [4, made("v")], score: [4, score], mix: [4, mix],
  E: [2, learned("embedded")], P: [2, learned("positions")] }));
