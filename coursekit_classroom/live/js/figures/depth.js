// <live-depth>: what becomes of the residual stream from block to block, with
// and without the x +, and with the norm before, after, or nowhere.
import { dot } from "../tensor.js";
import { define, LiveFigure } from "./figure.js";
import { checkbox, make, select, shape, slider } from "./parts.js";
import { say } from "./strings.js";
import { Untrained } from "./untrained.js";

const SIZES = { vocab: 8, length: 8, width: 64, heads: 4, blocks: 12 };
const NORMS = ["pre", "post", "none"];
const LEAST = -2, MOST = 4; // powers of ten on the axis of sizes
const LEFT = 50, RIGHT = 8, TOP = 32, HEIGHT = 172; // of the curve

/** Of a stream, (T, D): the size of its entries, and the cosines. */
export function measured(x) {
  const squares = x.map((row) => dot(row, row));
  const size = Math.sqrt(squares.reduce((sum, s) => sum + s, 0)
    / (x.length * x[0].length));
  const cosines = x.map((row, t) => x.map((other, s) =>
    dot(row, other) / Math.sqrt(squares[t] * squares[s])));
  const pairs = x.length * (x.length - 1);
  const all = cosines.flat().reduce((sum, c) => sum + c, 0);
  return { size, cosines, alike: (all - x.length) / pairs };
}

class LiveDepth extends LiveFigure {
  static key = "depth";

  parts() {
    const show = () => this.run();
    this.drawn = new Untrained(SIZES, this.number("seed", 0));
    this.residual = checkbox(say("depth.residual"),
      this.number("residual", 1) === 1, show);
    this.norm = select(say("depth.norm"),
      NORMS.map((name, i) => [i, say(`depth.${name}`)]),
      NORMS.indexOf(this.getAttribute("norm") ?? "pre"), show);
    this.times = slider(say("depth.times"),
      { min: 1, max: 8, step: 0.5, value: this.number("times", 4) }, show,
      (times) => `× ${times}`);
    this.chart = make("div", { className: "depth-chart" });
    this.resized = new ResizeObserver(() => requestAnimationFrame(() => {
      if (this.chart.clientWidth !== this.width_) this.draw();
    }));
    this.resized.observe(this.chart);
    return [
      make("div", { className: "live-row" }, this.residual.field,
        this.norm.field, this.times.field),
      this.chart,
    ];
  }

  /** The streams after the embedding and after each block. */
  streams() {
    const norm = NORMS[this.norm.value];
    const model = this.drawn.build({
      times: this.times.value, residual: this.residual.box.checked,
      norm: norm === "none" ? "none" : "layernorm", norm_first: norm !== "post",
    });
    const ids = Array.from({ length: SIZES.length }, (_, i) => i);
    const streams = [model.positions.forward(model.embedding.forward(ids), ids)];
    for (const block of model.blocks)
      streams.push(block.forward(streams.at(-1), { causal: true }));
    return streams;
  }

  run() {
    const before = this.found;
    this.found = this.streams().map(measured);
    const setting = [this.residual.box.checked, this.norm.value].join();
    // What was shown before the last press; a slider's way is not kept.
    if (setting !== this.setting) this.before = before;
    this.setting = setting;
    this.draw();
    const { size, alike } = this.found.at(-1);
    const kind = size > 20 ? "large" : size < 0.05 ? "small"
      : alike > 0.95 ? "alike" : "both";
    this.tell(say(`depth.sentence-${kind}`, {
      blocks: SIZES.blocks, size: digits(size), alike: alike.toFixed(2),
      from: digits(this.found[0].size),
    }));
  }

  draw() {
    const width = this.width_ = this.chart.clientWidth;
    if (width === 0 || !this.found) return;
    const step = (width - LEFT - RIGHT) / this.found.length;
    const x = (n) => LEFT + (n + 0.5) * step;
    const y = (size) => TOP + (HEIGHT - TOP) * (MOST
      - Math.max(LEAST, Math.min(MOST, Math.log10(size)))) / (MOST - LEAST);
    const text = (at, up, words, kind = "") => shape("text",
      { x: at, y: up, class: kind }, words);
    const line = (found, kind) => shape("polyline", { class: kind,
      points: found.map(({ size }, n) => `${x(n)},${y(size)}`).join(" ") });
    const cell = Math.max(2, Math.min(5, Math.floor((step - 3) / SIZES.length)));
    const side = cell * SIZES.length, top = HEIGHT + 40;
    // The cells stay, and only their opacity changes.
    if (this.maps?.width !== width) this.maps = { width,
      groups: this.found.map((_, n) => tile(cell,
        `translate(${Math.round(x(n) - side / 2)} ${top})`)) };
    this.found.forEach(({ cosines }, n) => cosines.flat().forEach((cosine, i) =>
      this.maps.groups[n].children[i].setAttribute(
        "fill-opacity", Math.max(0, cosine).toFixed(2))));
    const last = this.found.at(-1);
    const old = this.before?.at(-1).size;
    const isOther = old && Math.abs(y(old) - y(last.size)) > 3;
    const ends = [[last.size, digits(last.size), "depth-value"],
      ...(isOther ? [[old, say("depth.before"), "depth-old"]] : [])];
    const powers = [LEAST, 0, 2, MOST];
    this.chart.replaceChildren(shape("svg", {
      viewBox: `0 0 ${width} ${top + side + 42}`, role: "img",
      "aria-label": say("depth.chart", { size: digits(last.size),
        alike: last.alike.toFixed(2), blocks: SIZES.blocks }),
    },
    text(0, 13, say("depth.size"), "live-start depth-title"),
    ...powers.map((power) => shape("g", {},
      shape("line", { x1: LEFT, x2: width - RIGHT, y1: y(10 ** power),
        y2: y(10 ** power), class: "live-rule" }),
      text(LEFT - 6, y(10 ** power) + 4, (10 ** power).toLocaleString("en"), "live-end"))),
    ...(this.before ? [line(this.before, "depth-before")] : []),
    line(this.found, "depth-line"),
    ...this.found.map(({ size }, n) => shape("circle",
      { cx: x(n), cy: y(size), r: 4, class: "depth-point" })),
    ...ends.map(([size, words, kind], i) => text(x(SIZES.blocks),
      y(size) + (size >= ends.at(-1 - i)[0] ? -10 : 20), words, kind)),
    text(0, top - 10, say("depth.alike"), "live-start depth-title"),
    ...this.maps.groups,
    ...this.found.map((_, n) => text(x(n), top + side + 16, n)),
    text((LEFT + width - RIGHT) / 2, top + side + 36, say("depth.blocks"))));
  }
}

/** An empty map of cosines: its cells, and a frame. */
function tile(cell, transform) {
  const n = SIZES.length;
  return shape("g", { transform, class: "depth-map" },
    ...Array.from({ length: n * n }, (_, i) => shape("rect", {
      x: (i % n) * cell, y: Math.floor(i / n) * cell, width: cell, height: cell })),
    shape("rect", { width: n * cell, height: n * cell, class: "depth-frame" }));
}

/** Two digits: 0.031, 4.2, 310. */
function digits(n) {
  return Number(n.toPrecision(2)).toLocaleString("en", { maximumFractionDigits: 4 });
}

define("live-depth", LiveDepth);
