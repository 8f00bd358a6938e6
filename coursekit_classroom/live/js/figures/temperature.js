// <live-temperature>: who gets the probability when logits are divided by a
// temperature: the most probable tokens, one by one, and all others together.
import { CachedStepper } from "../cache.js";
import { filtered, leading } from "../generation.js";
import { define, LiveFigure } from "./figure.js";
import { make, shape, slider } from "./parts.js";
import { othersOf, percent, say, signed, tenths, visible } from "./strings.js";

const SHOWN = 5; // tokens that have a row and a band of their own
const STEPS = 20; // of the slider, from 1 to 10, and as many from 1 to 0.1
const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10];
const HEIGHT = 250, LEFT = 46, RIGHT = 12, TOP = 14, BOTTOM = 46;
const SHADES = [90, 58, 40, 27, 17]; // percent of the color, band by band

class LiveTemperature extends LiveFigure {
  static key = "temperature";

  parts() {
    this.stepper = new CachedStepper(this.library.build());
    this.text = this.textBox(say("text"), () => this.run());
    this.heat = slider(say("temperature.slider"), {
      min: -STEPS, max: STEPS,
      value: STEPS * Math.log10(this.number("temperature", 1)),
    }, () => this.show(), (step) => written(10 ** (step / STEPS)));
    this.rows = make("tbody");
    this.chart = make("div", { className: "temperature-chart" });
    for (const name of ["pointerdown", "pointermove"])
      this.chart.addEventListener(name, (event) => this.drag(event));
    this.resized = new ResizeObserver(() => requestAnimationFrame(() => {
      if (this.logits && this.chart.clientWidth !== this.width) this.draw();
    }));
    this.resized.observe(this.chart);
    const heads = ["token", "score", "probability"].map((name) =>
      make("th", { scope: "col" }, say(`temperature.${name}`)));
    return [
      this.text.field, this.heat.field,
      make("div", { className: "temperature-stage" }, this.chart,
        make("table", { className: "live-table" },
          make("thead", {}, make("tr", {}, ...heads)), this.rows)),
    ];
  }

  get temperature() {
    return 10 ** (this.heat.value / STEPS);
  }

  /** The line follows the pointer. */
  drag(event) {
    if (!event.buttons) return;
    if (event.type === "pointerdown") this.chart.setPointerCapture(event.pointerId);
    const { left } = this.chart.getBoundingClientRect();
    const at = (event.clientX - left - LEFT) / (this.width - LEFT - RIGHT);
    this.heat.value = Math.round(STEPS * (2 * at - 1));
    this.show();
  }

  /** Another text: its logits, and who gets what at each temperature. */
  run() {
    const { ids } = this.read(this.text.input.value || "\n", Infinity);
    if (ids.length === 0) return this.tell(say("empty"));
    [this.logits] = this.stepper.reread(ids);
    // One at least is among the others.
    this.best = leading(this.logits, Math.min(SHOWN, this.logits.length - 1));
    this.names = this.best.map((id) =>
      visible(this.library.tokenizer.decode([id])));
    this.draw();
    this.show();
  }

  /** The probabilities at a temperature: of the best, then of all others. */
  shares(temperature) {
    const all = filtered(this.logits, { temperature });
    const own = this.best.map((id) => all[id]);
    return [...own, Math.max(0, 1 - own.reduce((sum, p) => sum + p, 0))];
  }

  show() {
    if (!this.logits) return;
    const { temperature, names } = this;
    const own = this.shares(1), made = this.shares(temperature);
    const others = this.logits.length - names.length;
    this.rows.replaceChildren(...made.map((share, i) => {
      const track = make("span", { className: "live-track" });
      track.style.setProperty("--own", own[i]);
      track.style.setProperty("--made", share);
      const id = this.best[i], isOther = id === undefined;
      return make("tr", { className: isOther ? "temperature-others" : "" },
        make("th", { scope: "row" }, swatch(i, isOther), isOther
          ? say("temperature.others", { n: others.toLocaleString("en") })
          : names[i]),
        make("td", {}, isOther ? "" : signed(this.logits[id] / temperature)),
        make("td", {}, track,
          isOther ? othersOf(made.slice(0, -1)) : tenths(share)));
    }));
    this.aim();
    const sentence = say("temperature.sentence", {
      temperature: written(temperature), token: names[0],
      percent: percent(made[0]), own: percent(own[0]),
      n: others.toLocaleString("en"), rest: percent(made.at(-1)),
      before: percent(own.at(-1)),
    });
    this.chart.firstChild?.setAttribute("aria-label", sentence);
    this.tell(sentence);
  }

  /** Where a temperature stands in the chart: ten times is half of it. */
  place(temperature) {
    return LEFT + (this.width - LEFT - RIGHT) * (Math.log10(temperature) + 1) / 2;
  }

  /** The line goes to the temperature. */
  aim() {
    this.line?.setAttribute("transform",
      `translate(${this.place(this.temperature).toFixed(1)} 0)`);
  }

  /** A band for each token, one on the other, and the line that moves. */
  draw() {
    const width = this.width = this.chart.clientWidth;
    if (width === 0) return; // within something closed: drawn when it opens
    const room = HEIGHT - TOP - BOTTOM, y = (share) => TOP + room * (1 - share);
    const steps = Array.from({ length: 4 * STEPS + 1 },
      (_, i) => 10 ** (i / (2 * STEPS) - 1));
    const x = steps.map((step) => this.place(step));
    const columns = steps.map((temperature) => {
      let sum = 0;
      return [0, ...this.shares(temperature).map((share) => (sum += share))];
    });
    const edge = (k) => columns.map((sums, n) =>
      `${x[n].toFixed(1)},${y(sums[k]).toFixed(1)}`);
    const names = [...this.names, say("temperature.all-others")];
    const bands = names.map((_, i) => shape("polygon", {
      points: [...edge(i), ...edge(i + 1).reverse()].join(" "),
      style: `--shade: ${SHADES[i] ?? 0}%`,
      class: i < this.names.length ? "temperature-band" : "temperature-rest",
    }));
    const labels = names.map((name, i) => {
      const thick = columns.map((sums) => sums[i + 1] - sums[i]);
      const most = Math.max(...thick);
      if (most * room < 26) return ""; // its row has the same color
      // In the middle of where the band is nearly as thick as it gets.
      const near = [...thick.keys()].filter((n) => thick[n] > 0.9 * most);
      const n = near[near.length >> 1], half = 4 * name.length + 6;
      return shape("text", {
        x: Math.min(width - RIGHT - half, Math.max(LEFT + half, x[n])),
        y: y((columns[n][i] + columns[n][i + 1]) / 2) + 4,
        class: i === 0 ? "temperature-light" : "",
      }, name);
    });
    this.line = shape("g", { class: "temperature-line" },
      shape("line", { y1: TOP - 6, y2: y(0) + 4 }),
      shape("circle", { cy: TOP - 6, r: 7 }));
    const before = this.chart.firstChild?.getAttribute("aria-label") ?? "";
    this.chart.replaceChildren(shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "img", "aria-label": before },
    ...bands, ...labels,
    ...[0, 0.5, 1].map((share) => shape("text",
      { x: LEFT - 6, y: y(share) + 4, class: "live-end" }, percent(share))),
    ...TICKS.map((tick) => shape("text",
      { x: this.place(tick), y: HEIGHT - 26 }, tick)),
    shape("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6 },
      say("temperature.axis")), this.line));
    this.aim();
  }
}

/** The color of a token's band. */
function swatch(i, isOther) {
  const element = make("i", { className: isOther ? "temperature-grey" : "" });
  element.style.setProperty("--shade", `${SHADES[i] ?? 0}%`);
  return element;
}

function written(temperature) {
  return temperature.toFixed(temperature < 0.995 ? 2 : 1);
}

define("live-temperature", LiveTemperature);
