// coursekit/minimal.py's GPT with its backward pass: a batch of texts on flat
// arrays. Parameters have the library's names, so that coursekit.load and the
// engine of the figures (../decoder.js) read them as they are.
import { adamW, clipGradient } from "./adamw.js";
import {
  attentionBackward, attentionForward, geluBackward, geluForward,
  linearBackward, linearForward, lossAndGradient, normBackward, normForward,
} from "./backward.js";

const DECAY = 0.1; // of matrices; the norms' gains do not decay

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
export function uniform(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Two uniform numbers as a normal one (Box and Muller). */
function normal(random) {
  const radius = Math.sqrt(-2 * Math.log(1 - random()));
  return radius * Math.cos(2 * Math.PI * random());
}

/** Name and shape of each parameter, in the order of minimal.py. */
export function shapes({ V, T, D, blocks }) {
  const named = { "embedding.weight": [V, D], "positions.weight": [T, D] };
  for (let i = 0; i < blocks; i++) {
    const block = `blocks.${i}`;
    named[`${block}.attention_norm.weight`] = [D];
    for (const name of ["w_q", "w_k", "w_v", "w_o"])
      named[`${block}.attention.${name}.weight`] = [D, D];
    named[`${block}.feed_forward_norm.weight`] = [D];
    named[`${block}.feed_forward.w_in.weight`] = [4 * D, D];
    named[`${block}.feed_forward.w_out.weight`] = [D, 4 * D];
  }
  return { ...named, "final_norm.weight": [D], "head.weight": [V, D] };
}

/** A GPT in training: V tokens, T positions, D dimensions in H heads. */
export class Minimal {
  constructor(sizes, random = uniform(0)) {
    Object.assign(this, { sizes, random, shapes: shapes(sizes), step: 0 });
    let end = 0;
    this.range = {}; // of each parameter, in all that follow
    for (const [name, shape] of Object.entries(this.shapes))
      this.range[name] = [end, end += shape.reduce((a, b) => a * b)];
    const numbers = () => new Float32Array(end);
    // Weights, gradient, and AdamW's two running means.
    this.all = { w: numbers(), g: numbers(), m: numbers(), v: numbers() };
    this.w = this.named(this.all.w);
    this.g = this.named(this.all.g);
    this.initialize();
    this.makeRoom();
  }

  /** {name: its part} of an array with a number for each parameter. */
  named(array) {
    return Object.fromEntries(Object.entries(this.range).map(
      ([name, range]) => [name, array.subarray(...range)]));
  }

  initialize() {
    const { D, blocks } = this.sizes;
    for (const [name, shape] of Object.entries(this.shapes)) {
      let std = 0.5 / Math.sqrt(D);
      if (/(w_o|w_out)\.weight$/.test(name)) std /= Math.sqrt(2 * blocks);
      const weight = this.w[name];
      for (let i = 0; i < weight.length; i++)
        weight[i] = shape.length === 1 ? 1 : std * normal(this.random);
    }
  }

  /** Every array of a step, made once. */
  makeRoom() {
    const { V, T, D, H, batch, blocks } = this.sizes;
    const n = this.n = batch * T, rows = (size) => new Float32Array(n * size);
    const norm = () => ({ y: rows(D), centered: rows(D), scales: rows(1) });
    this.ids = new Int32Array(n);
    this.room = {
      // The residual stream: before each block, between its sums, and after.
      x: Array.from({ length: 2 * blocks + 1 }, () => rows(D)),
      blocks: Array.from({ length: blocks }, () => ({
        norm1: norm(), q: rows(D), k: rows(D), v: rows(D),
        P: new Float32Array(batch * H * T * T), heads: rows(D),
        norm2: norm(), inner: rows(4 * D), Phi: rows(4 * D), outer: rows(4 * D),
      })),
      norm: norm(), logits: rows(V), sum: rows(D),
      // Gradients; each is used again in every block.
      dx: rows(D), dy: rows(D), dq: rows(D), dk: rows(D), dv: rows(D),
      dheads: rows(D), dinner: rows(4 * D), douter: rows(4 * D),
    };
  }

  /** Draw a batch of windows: every token's target is the next one. */
  batch(ids) {
    const { T, batch } = this.sizes;
    const inputs = new Int32Array(this.n), targets = new Int32Array(this.n);
    for (let b = 0; b < batch; b++) {
      const from = Math.floor(this.random() * (ids.length - T));
      inputs.set(ids.subarray(from, from + T), b * T);
      targets.set(ids.subarray(from + 1, from + T + 1), b * T);
    }
    return [inputs, targets];
  }

  /** The loss of a batch; the logits' gradient is kept. */
  forward(ids, targets) {
    const { room, n, w } = this, { V, T, D } = this.sizes;
    const E = w["embedding.weight"], P = w["positions.weight"], [x] = room.x;
    this.ids = ids;
    for (let t = 0; t < n; t++)
      for (let i = 0; i < D; i++)
        x[t * D + i] = E[ids[t] * D + i] + P[(t % T) * D + i];
    room.blocks.forEach((block, i) => this.block(block, i));
    this.norm(room.norm, room.x.at(-1), "final_norm");
    linearForward(room.logits, room.norm.y, w["head.weight"], n, V, D);
    return lossAndGradient(room.logits, targets, n, V);
  }

  norm({ y, centered, scales }, x, name) {
    const gain = this.w[`${name}.weight`];
    normForward(y, centered, scales, x, gain, this.n, this.sizes.D);
  }

  /** x + attention(norm(x)), then x + feed_forward(norm(x)). */
  block(a, i) {
    const { n, room } = this, { D } = this.sizes, at = `blocks.${i}`;
    const weight = (name) => this.w[`${at}.${name}.weight`];
    const [x0, x1, x2] = room.x.slice(2 * i);
    this.norm(a.norm1, x0, `${at}.attention_norm`);
    for (const name of ["q", "k", "v"])
      linearForward(a[name], a.norm1.y, weight(`attention.w_${name}`), n, D, D);
    attentionForward(a.heads, a.P, a.q, a.k, a.v, this.sizes);
    linearForward(room.sum, a.heads, weight("attention.w_o"), n, D, D);
    add(x1, x0, room.sum);
    this.norm(a.norm2, x1, `${at}.feed_forward_norm`);
    linearForward(a.inner, a.norm2.y, weight("feed_forward.w_in"), n, 4 * D, D);
    geluForward(a.outer, a.Phi, a.inner);
    linearForward(room.sum, a.outer, weight("feed_forward.w_out"), n, D, 4 * D);
    add(x2, x1, room.sum);
  }

  /** Gradients of all parameters, from the last forward. */
  backward() {
    const { room, n, w, g, ids } = this, { V, T, D, blocks } = this.sizes;
    this.all.g.fill(0); // optimizer.zero_grad()
    room.dy.fill(0);
    linearBackward(room.dy, g["head.weight"], room.logits, room.norm.y,
      w["head.weight"], n, V, D);
    room.dx.fill(0);
    this.normBack(room.norm, "final_norm");
    for (let i = blocks - 1; i >= 0; i--) this.blockBack(room.blocks[i], i);
    const dE = g["embedding.weight"], dP = g["positions.weight"];
    for (let t = 0; t < n; t++)
      for (let i = 0; i < D; i++) {
        dE[ids[t] * D + i] += room.dx[t * D + i];
        dP[(t % T) * D + i] += room.dx[t * D + i];
      }
  }

  /** dy goes through a norm, and is added to the stream's dx. */
  normBack({ centered, scales }, name) {
    const { room, n } = this, key = `${name}.weight`;
    normBackward(room.dx, this.g[key], room.dy, centered, scales, this.w[key],
      n, this.sizes.D);
  }

  /** A block's sums pass dx on as it is, and add what comes through its
   *  parts: last in, first out. */
  blockBack(a, i) {
    const { n, room } = this, { D } = this.sizes, at = `blocks.${i}`;
    const through = (dx, dy, x, name, o, size) => linearBackward(dx,
      this.g[`${at}.${name}.weight`], dy, x, this.w[`${at}.${name}.weight`],
      n, o, size);
    for (const name of ["dy", "dq", "dk", "dv", "dheads", "dinner", "douter"])
      room[name].fill(0);
    through(room.douter, room.dx, a.outer, "feed_forward.w_out", D, 4 * D);
    geluBackward(room.dinner, room.douter, a.Phi, a.inner);
    through(room.dy, room.dinner, a.norm2.y, "feed_forward.w_in", 4 * D, D);
    this.normBack(a.norm2, `${at}.feed_forward_norm`);
    room.dy.fill(0);
    through(room.dheads, room.dx, a.heads, "attention.w_o", D, D);
    attentionBackward(room.dq, room.dk, room.dv, room.dheads, a.P, a.q, a.k,
      a.v, this.sizes);
    for (const name of ["q", "k", "v"])
      through(room.dy, room[`d${name}`], a.norm1.y, `attention.w_${name}`, D, D);
    this.normBack(a.norm1, `${at}.attention_norm`);
  }

  /** One training step on a batch, as minimal.py's train; return its loss. */
  update(inputs, targets, rate) {
    const loss = this.forward(inputs, targets);
    this.backward();
    clipGradient(this.all.g);
    this.step++;
    for (const [name, shape] of Object.entries(this.shapes)) {
      const decay = shape.length === 2 ? DECAY : 0;
      adamW(this.all, ...this.range[name], this.step, rate, decay);
    }
    return loss;
  }
}

function add(sum, x, y) {
  for (let i = 0; i < sum.length; i++) sum[i] = x[i] + y[i];
}
