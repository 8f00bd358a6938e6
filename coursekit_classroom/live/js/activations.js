// What passes through a GPT, to be seen or changed: coursekit/interpret.py.
//
// It is the forward pass of a pre-norm GPT as coursekit/minimal.py writes it,
// with a name for every state on the way.
import { mixValues } from "./attention.js";
import { nextPositions } from "./decoder.js";
import { causalMask } from "./masks.js";
import { mergeHeads, splitHeads } from "./multihead.js";
import { add, linear, softmax } from "./tensor.js";

/** Run a GPT and keep every state.
 *
 *  What is changed on the way, blocks, heads and tokens counted from 0:
 *    root: false     no score is divided by √Dh
 *    mask: false     every query sees every key
 *    muted           [[block, head], …]: heads that say nothing
 *    cut             blocks without the + around their attention
 *    straight        blocks without GELU
 *    weight          {block, head, query, key, share}: one weight is set, and
 *                    the others of its row share the rest as before
 *
 *  `before` are the states of the same ids with nothing changed: the blocks
 *  before the first change are taken from there. */
export function watch(model, ids, changes = {}, before = null) {
  if (!isPlain(model.config))
    throw new TypeError("a model is watched if it is built as minimal.py's");
  const places = nextPositions(ids, 0, model.config.max_len);
  const embedded = model.embedding.forward(ids);
  const zeros = embedded.map((row) => row.map(() => 0));
  const positions = model.positions.forward(zeros, places);
  let x = add(embedded, positions);
  const states = { embedded, positions, x, changes };
  const first = before ? firstChanged(changes) : 0;
  states.blocks = model.blocks.map((block, b) => {
    const kept = b < first ? before.blocks[b]
      : watchBlock(block, x, changes, b);
    x = kept.output;
    return kept;
  });
  states.logits = model.logits(x);
  return states;
}

/** The first block that changes concern. */
function firstChanged({ root, mask, muted = [], cut = [], straight = [],
  weight }) {
  if (root === false || mask === false) return 0;
  return Math.min(...muted.map(([block]) => block), ...cut, ...straight,
    weight?.block ?? Infinity);
}

/** Whether a model is of the kind that is written out here. */
function isPlain({ norm_first, residual, positions, activation, d_ff }) {
  return norm_first && residual && d_ff !== 0 && activation !== "swiglu"
    && ["learned", "sinusoidal", "none"].includes(positions);
}

function watchBlock(block, x, changes, b) {
  const { feedForward } = block;
  const normed = block.attentionNorm(x);
  const seen = watchAttention(block.attention, normed, changes, b);
  const middle = changes.cut?.includes(b) ? seen.attended
    : add(x, seen.attended);
  const normed2 = block.feedForwardNorm(middle);
  const hidden = linear(normed2, feedForward.w_in);
  const active = changes.straight?.includes(b) ? hidden
    : hidden.map((row) => row.map(feedForward.activation));
  const written = linear(active, feedForward.w_out);
  const output = add(middle, written);
  return { input: x, normed, ...seen, middle, normed2, hidden, active,
    written, output };
}

function watchAttention(attention, x, changes, b) {
  const [q, k, v] = [attention.w_q, attention.w_k, attention.w_v].map(
    (matrix) => splitHeads(linear(x, matrix), attention.nHeads));
  const root = changes.root === false ? 1 : Math.sqrt(q[0][0].length);
  const mask = causalMask(x.length);
  const scores = q.map((head, h) => linear(head, { weight: k[h] })
    .map((row) => row.map((product) => product / root)));
  const weights = scores.map((head) => head.map((row, t) =>
    softmax(row.map((score, s) =>
      (changes.mask !== false && !mask[t][s] ? -Infinity : score)))));
  const { weight } = changes;
  if (weight?.block === b) setShare(weights[weight.head][weight.query], weight);
  const heads = mixValues(weights, v);
  for (const [block, head] of changes.muted ?? [])
    if (block === b) heads[head] = heads[head].map((row) => row.map(() => 0));
  const attended = linear(mergeHeads(heads), attention.w_o);
  return { q, k, v, scores, weights, heads, attended };
}

/** Set one share of a row; the others divide what is left as before. */
function setShare(row, { key, share }) {
  const rest = 1 - row[key];
  row.forEach((old, s) => {
    row[s] = s === key ? share : rest > 0 ? (old * (1 - share)) / rest : 0;
  });
}
