// <live-positions>: two positions to move, the hands that they turn, and the
// dot product, which only their distance decides.
import { frequencies } from "../positions.js";
import { define, LiveFigure } from "./figure.js";
import { make, shape, slider } from "./parts.js";
import { say, signed } from "./strings.js";

const LAST = 40; // position
const SIZE = 16; // coordinates: eight pairs
const DIALS = 4; // of them are drawn
const WIDTH = 400, EDGE = 10; // of the curve's picture

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
    return [
      make("div", { className: "live-row" },
        this.query.field, this.other.field),
      this.dials, this.curve,
    ];
  }

  /** The point follows the pointer: the query moves, the key stays. */
  drag(event) {
    if (!event.buttons) return;
    const { left, width } = this.curve.firstChild.getBoundingClientRect();
    const x = (WIDTH * (event.clientX - left)) / width;
    const distance = (2 * LAST * (x - EDGE)) / (WIDTH - 2 * EDGE) - LAST;
    this.query.value = Math.round(this.other.value + distance);
    this.run();
  }

  run() {
    const m = this.query.value, n = this.other.value;
    const speeds = frequencies(SIZE);
    this.dials.setAttribute("aria-label", say("positions.dials"));
    this.dials.replaceChildren(...speeds.slice(0, DIALS).map((speed, i) =>
      make("figure", {}, dial(m * speed, n * speed),
        make("figcaption", {}, say("positions.pair", { n: i + 1 })))));
    this.curve.replaceChildren(curve(speeds, m - n));
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

function curve(speeds, distance) {
  const x = (d) => EDGE + ((WIDTH - 2 * EDGE) * (d + LAST)) / (2 * LAST);
  const y = (value) => 110 - (95 * (value + speeds.length / 2))
    / (1.5 * speeds.length);
  const points = Array.from({ length: 8 * LAST + 1 }, (_, i) => {
    const d = i / 4 - LAST;
    return `${x(d).toFixed(1)},${y(product(speeds, d)).toFixed(1)}`;
  });
  return shape("svg", { viewBox: `0 0 ${WIDTH} 130`, role: "img",
    "aria-label": say("positions.curve") },
  shape("line", { x1: EDGE, x2: WIDTH - EDGE, y1: y(0), y2: y(0), class: "live-rule" }),
  shape("polyline", { points: points.join(" "), class: "live-line" }),
  shape("circle", { cx: x(distance), cy: y(product(speeds, distance)), r: 6,
    class: "live-point" }),
  ...[-LAST, 0, LAST].map((d) => shape("text",
    { x: x(d), y: 128, class: d < 0 ? "live-start" : d > 0 ? "live-end" : "" },
    say("positions.distance", { d: String(d).replace("-", "−") }))));
}

define("live-positions", LivePositions);
