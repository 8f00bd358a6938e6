// <live-calculator>: what a model costs, and which cost follows which size.
import { cacheBytes, countParameters, forwardFlops } from "../scaling.js";
import { define, LiveFigure } from "./figure.js";
import { make, select, slider } from "./parts.js";
import { PRESETS } from "./presets.js";
import { percent, say } from "./strings.js";

// What a slider can be set to; a preset's own value is added.
const BLOCKS = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 126];
const WIDTHS = [64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384];
const LENGTHS = Array.from({ length: 15 }, (_, i) => 2 ** (i + 6));
const BITS = [32, 16, 8, 4];
const STATE = 16; // bytes per parameter: itself, its gradient, AdamW's two
const TOKENS = 20; // per parameter, of the training text
const A100 = 312e12 / 2; // FLOPs per second, half of what it can do
const ROWS = ["parameters", "flops", "memory"];
const COLORS = {
  embedding: "token", positions: "pale", projections: "query", attention: "query",
  scores: "weight", network: "ffn", head: "token", norms: "norm",
  weights: "token", cache: "key",
};

/** Costs of a configuration at a length, each by its parts. */
export function costs(config, length, bits) {
  const { tokens: embedding, ...others } = countParameters(config);
  const parameters = { embedding, ...others };
  const flops = forwardFlops(config, length);
  for (const part of Object.keys(flops)) flops[part] /= length; // per token
  const n = sum(parameters);
  return {
    parameters, flops,
    memory: { weights: (n * bits) / 8, cache: cacheBytes(config, length, bits / 8) },
    training: n * STATE,
    seconds: (3 * sum(flops) * TOKENS * n) / A100,
  };
}

class LiveCalculator extends LiveFigure {
  static key = "calculator";

  parts() {
    const names = Object.keys(PRESETS);
    const first = Math.max(0, names.indexOf(this.getAttribute("preset")));
    this.preset = select(say("calculator.preset"),
      names.map((name, i) => [i, name]), first, () => this.choose());
    this.controls = make("div", { className: "cost-sizes" });
    this.bits = select(say("calculator.bits"),
      BITS.map((bits) => [bits, say("calculator.bit", { bits })]), 16, () => this.run());
    this.rows = ROWS.map(row);
    this.training = make("p", { className: "cost-head" });
    this.choose(true);
    return [
      make("div", { className: "live-row" }, this.preset.field, this.bits.field),
      this.controls,
      make("div", { className: "cost-rows" },
        ...this.rows.map(({ element }) => element), this.training),
    ];
  }

  /** A preset: its sizes, which the sliders change. */
  choose(isFirst = false) {
    const base = this.base = Object.values(PRESETS)[this.preset.value];
    const heads = base.n_heads, size = base.d_head ?? base.d_model / heads;
    const scale = (name, values, own, show = count) => {
      const all = [...new Set([...values, own])].sort((a, b) => a - b);
      const part = slider(say(`calculator.${name}`),
        { min: 0, max: all.length - 1, value: all.indexOf(own) },
        () => this.run(), (place) => show(all[place]));
      return { field: part.field, get value() { return all[part.value]; },
        update() { part.value = part.value; } };
    };
    const shared = heads / (base.n_kv_heads ?? heads);
    this.blocks = scale("blocks", BLOCKS, base.n_layers);
    this.width = scale("width", WIDTHS.filter((n) => n % size === 0), base.d_model);
    this.length = scale("length", LENGTHS, base.max_len);
    this.shared = scale("shared", [1, 2, 3, 4, 8, 16], shared, (n) => this.fitting(n));
    this.controls.replaceChildren(this.blocks.field, this.width.field,
      this.length.field, this.shared.field);
    if (!isFirst) this.run();
  }

  /** Heads are as wide as the preset's: a wider model has more of them. */
  get heads() {
    return (this.base.n_heads * this.width.value) / this.base.d_model;
  }

  /** The largest number up to n that divides the heads. */
  fitting(n) {
    while (this.heads % n) n--;
    return n;
  }

  /** The configuration that the sliders say. */
  get config() {
    const { base, heads } = this, width = this.width.value;
    const inner = base.d_ff ?? 4 * base.d_model;
    return {
      ...base, n_layers: this.blocks.value, d_model: width,
      max_len: this.length.value, n_heads: heads,
      n_kv_heads: heads / this.fitting(this.shared.value),
      d_ff: Math.round((inner * width) / base.d_model),
    };
  }

  run() {
    const { base } = this, bits = this.bits.value;
    this.shared.update(); // as many as fit the heads that there are now
    const now = this.costs = costs(this.config, this.length.value, bits);
    const before = costs(base, base.max_len, 16);
    const length = count(this.length.value);
    this.rows.forEach(({ head, bar, list }, i) => {
      const name = ROWS[i], total = sum(now[name]);
      head.replaceChildren(...heading(amount(total, name === "memory"),
        say(`calculator.${name}`, { length }), total / sum(before[name])));
      const parts = Object.entries(now[name]).filter(([, n]) => n / total > 0.0005);
      bar.replaceChildren(...parts.map(([part, n]) => {
        const element = make("span", { className: `cost-${COLORS[part]}` });
        element.style.setProperty("--made", n / total);
        return element;
      }));
      list.replaceChildren(...parts.map(([part, n]) => make("li", {},
        make("i", { className: `cost-${COLORS[part]}` }),
        `${say(`calculator.part-${part}`)} ${percent(n / total)}`)));
    });
    this.training.replaceChildren(...heading(amount(now.training, true),
      say("calculator.training", { time: duration(now.seconds) }),
      now.training / before.training));
    this.tell(say("calculator.sentence", {
      length, parameters: amount(sum(now.parameters)),
      flops: amount(sum(now.flops)), memory: amount(sum(now.memory), true),
      cache: percent(now.memory.cache / sum(now.memory)),
      scores: percent(now.flops.scores / sum(now.flops)),
    }));
  }
}

/** An amount, what it is of, and how many times that of the preset. */
function heading(size, words, factor) {
  const isSame = Math.abs(factor - 1) < 0.005;
  return [make("b", {}, size), ` ${words}`, make("span",
    { className: "cost-factor" }, isSame ? "" : `×\u00a0${short(factor)}`)];
}

/** A cost: what it is, a bar of its parts, and their names. */
function row() {
  const head = make("p", { className: "cost-head" });
  const bar = make("div", { className: "cost-bar", "aria-hidden": true });
  const list = make("ul", { className: "cost-parts" });
  return { head, bar, list, element: make("div", {}, head, bar, list) };
}

function sum(parts) {
  return Object.values(parts).reduce((total, n) => total + n, 0);
}

function count(n) {
  return n.toLocaleString("en");
}

/** Three digits: 0.25, 1.04, 28, 1,040. */
function short(n) {
  return Number(n.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 4 });
}

/** 124 million, 8.03 billion; or 250 MB. */
export function amount(n, isBytes = false) {
  if (!isBytes && n < 1e6) return short(n);
  const power = Math.min(5, Math.floor(Math.log10(n) / 3 + 1e-12));
  const kind = isBytes ? "bytes" : "number";
  return `${short(n / 1000 ** power)} ${say(`calculator.${kind}-${power}`)}`;
}

/** Seconds as a reader counts them. */
function duration(seconds) {
  const units = [["second", 1], ["minute", 60], ["hour", 3600], ["day", 86_400],
    ["year", 31_557_600]];
  const [name, length] = units.findLast(([, size]) => seconds >= size) ?? units[0];
  return say(`calculator.${name}`, { n: short(seconds / length) });
}

define("live-calculator", LiveCalculator);
