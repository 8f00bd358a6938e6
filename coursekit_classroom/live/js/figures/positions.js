// <live-positions>: two positions to move, the hands that they turn, and the
// dot product, which only their distance decides.
import { frequencies } from "../positions.js";
import { define, LiveFigure } from "./figure.js";
import { make, shape, slider } from "./parts.js";
import { say, signed } from "./strings.js";

const LAST = 40; // position
const SIZE = 16; // coordinates: eight pairs
const DIALS = 4; // of them are drawn
// Of the curve's picture: pixels, and products that get a line.
const LEFT = 46, RIGHT = 12, TOP = 12, HIGH = 140, MARKS = [0, 4, 8];

class LivePositions extends LiveFigure {
  static key = "positions";

  parts() {
    const show = () => this.run();
    const range = { min: 0, max: LAST };
    this.query = slider(say("positions.query"),
      { ...range, value: this.number("query", 12) }, show);
    this.other = slider(say("positions.key"),
      { ...range, value: this.number("key", 7) }, show);
    this.dials = make("div", { className: "live-row live-dials", role: "img" });
    this.curve = make("div", { className: "live-curve" });
    for (const name of ["pointerdown", "pointermove"])
      this.curve.addEventListener(name, (event) => this.drag(event));
    new ResizeObserver(() => requestAnimationFrame(() => {
      if (this.curve.clientWidth !== this.width) this.draw();
    })).observe(this.curve);
    return [
      make("div", { className: "live-row" },
        this.query.field, this.other.field),
      this.dials, this.curve,
    ];
  }

  /** The point follows the pointer: the query moves, the key stays. */
  drag(event) {
    if (!event.buttons) return;
    const { left } = this.curve.getBoundingClientRect();
    const share = (event.clientX - left - LEFT) / (this.width - LEFT - RIGHT);
    const distance = 2 * LAST * share - LAST;
    this.query.value = Math.round(this.other.value + distance);
    this.run();
  }

  speeds = frequencies(SIZE);

  draw() {
    this.width = this.curve.clientWidth;
    if (this.width === 0) return; // within something closed
    this.curve.replaceChildren(
      curve(this.speeds, this.query.value - this.other.value, this.width));
  }

  run() {
    const m = this.query.value, n = this.other.value;
    const { speeds } = this;
    this.dials.setAttribute("aria-label", say("positions.dials"));
    this.dials.replaceChildren(...speeds.slice(0, DIALS).map((speed, i) =>
      make("figure", {}, dial(m * speed, n * speed),
        make("figcaption", { className: "positions-pair" }, say("positions.pair", { n: i })))));
    this.draw();
    this.tell(say("positions.sentence", {
      m, n,
      distance: String(m - n).replace("-", "−"),
      product: signed(product(speeds, m - n)),
    }));
  }
}

/** Of two rows of ones that are turned to their positions. */
function product(speeds, distance) {
  return speeds.reduce((sum, speed) => sum + Math.cos(distance * speed), 0);
}

function dial(query, key) {
  const hand = (angle, kind) => shape("line", {
    class: kind, x1: 0, y1: 0,
    x2: 34 * Math.sin(angle), y2: -34 * Math.cos(angle),
  });
  return shape("svg", { viewBox: "-40 -40 80 80", width: 80, height: 80 },
    shape("circle", { r: 38, class: "live-ring" }),
    hand(key, "live-key"), hand(query, "live-query"));
}

function curve(speeds, distance, width) {
  const x = (d) => LEFT + ((width - LEFT - RIGHT) * (d + LAST)) / (2 * LAST);
  const y = (value) => TOP + HIGH * (1 - value / speeds.length);
  const points = Array.from({ length: 8 * LAST + 1 }, (_, i) => {
    const d = i / 4 - LAST;
    return `${x(d).toFixed(1)},${y(product(speeds, d)).toFixed(1)}`;
  });
  const minus = (number) => String(number).replace("-", "−");
  return shape("svg", { width, height: TOP + HIGH + 42, role: "img",
    "aria-label": say("positions.curve") },
  ...MARKS.flatMap((mark) => [
    shape("line", { x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark),
      class: "live-rule" }),
    shape("text", { x: LEFT - 6, y: y(mark) + 4.5, class: "live-end" },
      minus(mark))]),
  shape("text", { class: "positions-axis",
    transform: `translate(13 ${TOP + HIGH / 2}) rotate(-90)` },
  say("positions.product")),
  shape("polyline", { points: points.join(" "), class: "live-line" }),
  shape("circle", { cx: x(distance), cy: y(product(speeds, distance)), r: 6,
    class: "live-point" }),
  ...[-LAST, -LAST / 2, 0, LAST / 2, LAST].map((d) => shape("text",
    { x: x(d), y: TOP + HIGH + 18, class: d === LAST ? "live-end" : "" },
    minus(d))),
  shape("text", { x: x(0), y: TOP + HIGH + 37 }, say("positions.distance")));
}

define("live-positions", LivePositions);
