// What figures are made of: native controls, a row of tokens, a heat map.
import { percent, say, visible } from "./strings.js";
import { ranking } from "../generation.js";

/** An element with properties (those with a dash are attributes). */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** An element of a drawing. */
export function shape(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes))
    element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Options of a list: 1, 2, … for 0, 1, … */
export function numbered(n) {
  return Array.from({ length: n }, (_, i) => [i, `${i + 1}`]);
}

/** A control with its name. */
export function field(name, control, ...more) {
  return make("label", { className: "live-field" },
    make("span", {}, name), control, ...more);
}

export function button(name, press) {
  return make("button", { type: "button", onclick: press }, name);
}

/** Give the reader a file. */
export function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export function checkbox(name, checked, change) {
  const box = make("input", { type: "checkbox", checked, onchange: change });
  return { box, field: make("label", { className: "live-check" }, box, name) };
}

/** A list to choose from; its value is a number. */
export function select(name, options, chosen, change) {
  const list = make("select", { onchange: change });
  for (const [value, text] of options)
    list.append(make("option", { value, selected: value === chosen }, text));
  return { field: field(name, list), get value() { return Number(list.value); } };
}

/** A slider whose value stands beside it. */
export function slider(name, range, change, show = String) {
  const input = make("input", { type: "range" });
  Object.assign(input, { min: range.min, max: range.max, step: range.step ?? 1 });
  const output = make("output");
  const update = () => {
    output.textContent = show(input.valueAsNumber);
    // What a screen reader says is what stands beside the slider.
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => { update(); change(); });
  const part = {
    input,
    field: field(name, make("span", {}, input, output)),
    get value() { return input.valueAsNumber; },
    set value(value) { input.value = value; update(); },
    set max(max) { input.max = max; update(); },
  };
  part.value = range.value;
  return part;
}

export function textBox(name, value, change, properties = {}) {
  const input = make("input", {
    type: "text", value, oninput: change, autocomplete: "off",
    spellcheck: false, className: "live-text", ...properties,
  });
  return { input, field: field(name, input) };
}

/** Tokens in a row, of which one is chosen: by arrow keys, mouse or touch. */
export class TokenRow {
  constructor(name, choose) {
    this.choose = choose;
    this.chosen = 0;
    this.element = make("div", {
      className: "live-tokens", role: "listbox", tabIndex: 0,
      "aria-label": name, "aria-orientation": "horizontal",
      onkeydown: (event) => this.press(event),
    });
    TokenRow.count = (TokenRow.count ?? 0) + 1;
    this.id = `live-tokens-${TokenRow.count}`;
  }

  /** Show other tokens. */
  set(texts) {
    this.element.replaceChildren(...texts.map((text, i) => make("span", {
      role: "option", id: `${this.id}-${i}`, className: "live-token",
      onclick: () => this.choose(i), onpointerenter: (event) => {
        if (event.pointerType === "mouse") this.choose(i);
      },
    }, visible(text))));
  }

  /** Mark the chosen token, and shade each by its share. */
  mark(chosen, shares) {
    this.chosen = chosen;
    [...this.element.children].forEach((token, i) => {
      token.setAttribute("aria-selected", i === chosen);
      token.style.setProperty("--share", shares?.[i] ?? 0);
    });
    this.element.setAttribute("aria-activedescendant", `${this.id}-${chosen}`);
  }

  press(event) {
    const last = this.element.children.length - 1;
    const goal = {
      ArrowLeft: this.chosen - 1, ArrowUp: this.chosen - 1,
      ArrowRight: this.chosen + 1, ArrowDown: this.chosen + 1,
      Home: 0, End: last,
    }[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    this.choose(Math.max(0, Math.min(last, goal)));
  }
}

const FAINT = 0.04; // a share below it gets no line
const WIDEST = 10; // pixels of a line that has all of the weight

/** Two rows of tokens, and lines from one of the lower to those above, as wide
 *  as their shares. */
export class Lines {
  constructor(above, below) {
    this.above = above;
    this.below = below;
    this.drawing = shape("svg", { class: "live-lines", "aria-hidden": true });
    this.element = make("div", { className: "live-between" },
      this.drawing, above, below);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Lines from the lower row's token ``from``. */
  set(from, shares) {
    this.from = from;
    this.shares = shares;
    this.draw();
  }

  draw() {
    const tokens = this.above.children, start = this.below.children[this.from];
    if (!start) return;
    const origin = this.element.getBoundingClientRect();
    const box = start.getBoundingClientRect();
    const middle = ({ left, width }) => left + width / 2 - origin.left;
    const lines = [...tokens].flatMap((token, i) => {
      if (!(this.shares[i] >= FAINT)) return [];
      const end = token.getBoundingClientRect();
      return shape("line", {
        x1: middle(box), y1: box.top - origin.top,
        x2: middle(end), y2: end.bottom - origin.top,
        "stroke-width": WIDEST * this.shares[i],
      });
    });
    this.drawing.replaceChildren(...lines);
  }
}

const TALL = 420; // pixels of a map's rows, where their names leave them

/** A matrix of weights on a canvas: queries are rows, keys are columns. */
export class HeatMap {
  constructor(choose) {
    this.canvas = make("canvas", { role: "img" });
    this.element = make("div", { className: "live-map" }, this.canvas);
    const aim = (event) => {
      const { top, left, cell } = this.place;
      const row = Math.floor((event.offsetY - top) / cell);
      if (event.offsetX >= left && row >= 0 && row < this.rows.length)
        choose(row);
    };
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse") aim(event);
    });
    this.canvas.addEventListener("click", aim);
    // Drawing changes the height: only another width is worth drawing for.
    this.resized = new ResizeObserver(() => requestAnimationFrame(() => {
      if (this.weights && this.element.clientWidth !== this.width) this.draw();
    }));
    this.resized.observe(this.element);
  }

  /** Show other weights; `rows` and `columns` are the tokens. */
  set(weights, rows, columns, chosen, sentence) {
    Object.assign(this, { weights, rows, columns, chosen });
    this.canvas.setAttribute("aria-label", sentence);
    this.draw();
  }

  draw() {
    const { canvas, rows, columns, weights, chosen } = this;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(this.element);
    const font = `12px ${style.fontFamily}`;
    pen.font = font;
    const length = (texts) => Math.min(90, 8
      + Math.max(...texts.map((text) => pen.measureText(visible(text)).width)));
    const width = this.width = this.element.clientWidth;
    if (width === 0) return; // within something closed: drawn when it opens
    let left = 20 + length(rows), top = 20 + length(columns);
    // With the text above and the sentence below it, it fits on a screen.
    const most = Math.max(12, Math.min(44, TALL / rows.length));
    let cell = Math.min(most, (width - left - 1) / columns.length);
    const named = cell >= 11; // below, a name would lie on its neighbor
    if (!named) [left, top] = [20, 20];
    cell = Math.min(most, (width - left - 1) / columns.length);
    this.place = { left, top, cell };
    const height = top + cell * rows.length + 1;
    const sharp = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.height = `${height}px`;
    pen.scale(sharp, sharp);

    const ink = style.color, paper = style.getPropertyValue("--live-paper");
    const mark = style.getPropertyValue("--live-mark");
    pen.font = font;
    pen.textBaseline = "middle";
    weights.forEach((row, t) => row.forEach((share, s) => {
      if (share === 0) return; // hidden by the mask
      const x = left + s * cell, y = top + t * cell;
      pen.globalAlpha = Math.min(1, share);
      pen.fillStyle = mark;
      pen.fillRect(x, y, cell, cell);
      pen.globalAlpha = 1;
      if (cell < 23) return; // room for a number
      pen.fillStyle = share > 0.6 ? paper : ink;
      pen.textAlign = "center";
      pen.fillText(share.toFixed(2).replace(/^0|\.00$/, ""), x + cell / 2, y + cell / 2);
    }));
    pen.fillStyle = ink;
    pen.strokeStyle = ink;
    pen.globalAlpha = 0.3;
    pen.strokeRect(left, top, cell * columns.length, cell * rows.length);
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.strokeRect(left, top + chosen * cell, cell * columns.length, cell);
    // Names of the axes, then of rows and columns.
    pen.textAlign = "left";
    pen.fillText(say("key"), left, 8);
    this.turned(pen, say("query"), 8, top, "right");
    if (!named) return;
    rows.forEach((text, t) => {
      pen.textAlign = "right";
      pen.fillText(this.fit(pen, text), left - 5, top + (t + 0.5) * cell);
    });
    columns.forEach((text, s) => this.turned(
      pen, this.fit(pen, text), left + (s + 0.5) * cell, top - 5, "left"));
  }

  /** Text that runs upwards. */
  turned(pen, text, x, y, align) {
    pen.save();
    pen.translate(x, y);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = align;
    pen.fillText(text, 0, 0);
    pen.restore();
  }

  /** A token, cut if it is longer than the margin. */
  fit(pen, text) {
    text = visible(text);
    if (pen.measureText(text).width <= 84) return text;
    while (pen.measureText(`${text}…`).width > 84) text = text.slice(0, -1);
    return `${text}…`;
  }
}

/** The largest shares of a row in words: “dog” 61 %, “the” 12 %. */
export function largest(shares, names, n = 3) {
  return ranking(shares).slice(0, n).filter((i) => shares[i] > 0)
    .map((i) => say("share", {
      token: visible(names[i]), percent: percent(shares[i]),
    })).join(say("and"));
}

/** The mean of several matrices. */
export function mean(matrices) {
  return matrices[0].map((row, t) => row.map((_, s) =>
    matrices.reduce((sum, matrix) => sum + matrix[t][s], 0) / matrices.length));
}

/** Numbers from 0 to 1 that are the same for everybody. */
export function seeded(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
