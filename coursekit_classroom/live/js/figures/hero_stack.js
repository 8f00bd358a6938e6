// Of <live-hero>: the tokens as boxes, the blocks under them as a thin stack,
// and arcs from tokens to the last one's stream, as wide as their weights.
import { ranking } from "../generation.js";
import { largest, make, shape } from "./parts.js";
import { percent, say } from "./strings.js";

const SHOWN = 48; // tokens; of a longer text these are the last
const FAINT = 0.04; // a weight below it gets no arc
const SLAB = 26, GAP = 4, ROOM = 20; // of a block, below it, above the first
const WIDEST = 12; // pixels of an arc that has all of the weight
const NAMED = 52; // pixels, half of "attention 99.8%"

/** The tokens, and what happens to the last one's vector. */
export class Stack {
  constructor(nBlocks, swap) {
    Object.assign(this, { nBlocks, swap });
    this.tokens = make("ol", {
      className: "hero-tokens", role: "list", "aria-label": say("hero.tokens"),
    });
    this.window = make("div", { className: "hero-window" }, this.tokens);
    this.drawing = shape("svg", { role: "img", class: "hero-stack" });
    this.element = make("div", { className: "hero-model" },
      this.window, this.drawing);
    this.element.style.setProperty("--blocks", `${this.height}px`);
    new ResizeObserver(() => this.look && this.draw()).observe(this.element);
  }

  /** Pixels under the tokens. */
  get height() {
    return ROOM + this.nBlocks * (SLAB + GAP) + 10;
  }

  /** Show other tokens; `look` is a head with the last token's weights, and
   *  `second` one of an earlier block, or null. */
  set(tokens, look, second) {
    const focused = this.tokens.contains(document.activeElement);
    const first = Math.max(0, tokens.length - SHOWN);
    this.first = first;
    this.names = tokens.map(({ name }) => name);
    Object.assign(this, { look, second });
    this.boxes = tokens.slice(first).map((token, i) =>
      this.box(token, first + i === tokens.length - 1));
    const earlier = make("li", { className: "hero-earlier" },
      say("hero.earlier", { n: first }));
    this.tokens.replaceChildren(...(first ? [earlier] : []), ...this.boxes);
    if (focused) this.tokens.querySelector("button")?.focus();
    this.draw();
  }

  box({ name, joined, other }, isLast) {
    const box = make("li", {}, make("span", {}, name));
    box.classList.toggle("hero-joined", joined);
    box.classList.toggle("hero-last", isLast);
    if (!other) return box;
    const button = make("button", {
      type: "button", onclick: this.swap, className: "hero-swap",
      "aria-label": say("hero.swap-label", { token: name, other }),
    }, make("span", {}, say("hero.swap", { other })));
    box.append(button);
    return box;
  }

  /** What the head looks at, in words. */
  get sentence() {
    const said = ({ layer, head, weights }) => ({ layer: layer + 1,
      head: head + 1, shares: largest(weights, this.names, 2) });
    return say("hero.arcs", { token: this.names.at(-1), ...said(this.look) })
      + (this.second ? say("hero.second", said(this.second)) : "");
  }

  /** Where the bottom of a token's box is; none if it is out of sight. */
  place(i) {
    const box = this.boxes[i - this.first];
    const top = box?.offsetTop - this.window.scrollTop;
    if (!(top >= 0)) return null;
    return { x: box.offsetLeft + box.offsetWidth / 2,
      y: top + box.offsetHeight };
  }

  /** Where the next token goes, on the screen. */
  get end() {
    const { right, top } = this.boxes.at(-1).getBoundingClientRect();
    return { x: right + 5, y: top };
  }

  draw() {
    const width = this.element.clientWidth;
    if (width === 0) return;
    this.window.scrollTop = this.window.scrollHeight; // the last lines
    const top = this.window.offsetHeight + ROOM;
    const layers = Array.from({ length: this.nBlocks }, (_, layer) =>
      [layer, top + layer * (SLAB + GAP)]);
    const end = this.place(this.names.length - 1);
    const main = this.look.layer;
    const labels = layers.map(([, y]) =>
      shape("text", { y: y + SLAB / 2 + 4.5, class: "hero-label" }));
    this.drawing.replaceChildren(
      ...layers.map(([layer, y]) => shape("rect", {
        class: layer === main || layer === this.second?.layer
          ? "hero-slab hero-main" : "hero-slab",
        x: 0.5, y, width: width - 1, height: SLAB, rx: 5 })),
      this.stream(end, width),
      ...this.arc(layers, end),
      ...this.arcs(layers[main][1] + SLAB / 2, end),
      ...labels,
      ...this.percents(end));
    this.name(labels, end, width);
    this.drawing.setAttribute("aria-label", this.sentence);
  }

  /** The last token's vector goes down through the blocks to the bars. */
  stream({ x, y }, width) {
    const bottom = this.element.clientHeight - 2;
    // The bars stand at the right, or below, where there is no room.
    const isBeside = this.element.parentElement.clientWidth > width;
    const goal = isBeside ? `12 12H${width + 8}` : `-12 12H14q-12 0 -12 12`;
    return shape("path", { class: "hero-stream",
      d: `M${x} ${y}V${bottom - 12}q0 12 ${goal}` });
  }

  /** Names the blocks, on the right if they fit there, shorter if need be:
   *  arcs mostly come from the left. There a long name would reach them. */
  name(labels, { x }, width) {
    const write = (looks) => {
      labels.forEach((label, layer) =>
        label.textContent = this.words(layer, looks));
      return 16
        + Math.max(...labels.map((label) => label.getComputedTextLength()));
    };
    const isRight = write("hero.looks") < width - x
      || write("hero.looks-short") < width - x || x < width / 2;
    if (!isRight && write("hero.looks") > x / 2) write("hero.looks-short");
    for (const label of labels) {
      label.setAttribute("x", isRight ? width - 10 : 10);
      label.classList.toggle("live-end", isRight);
    }
  }

  /** What a block's label says. */
  words(layer, looks) {
    const look = [this.look, this.second].find((each) => each?.layer === layer);
    return look ? say(looks, {
      layer: layer + 1, head: look.head + 1,
      token: this.names[ranking(look.weights)[0]],
    }) : say("hero.block", { layer: layer + 1 });
  }

  /** From the token at which the second head looks: dotted. */
  arc(layers, end) {
    if (!this.second) return [];
    const { layer, weights } = this.second, [best] = ranking(weights);
    const from = best < weights.length - 1 && this.place(best);
    return from ? [curve(from, end, layers[layer][1] + SLAB / 2,
      { class: "hero-arc hero-second", "stroke-width": 5 })] : [];
  }

  /** From each token that has weight, into the last one's stream. */
  arcs(y, end) {
    return this.seen(FAINT).map((from) => curve(from, end, y, {
      class: "hero-arc",
      "stroke-width": (1.5 + WIDEST * from.weight).toFixed(1) }));
  }

  /** The largest weights, under their tokens, as far as there is room; the
   *  first says what it is. */
  percents(end) {
    const taken = [];
    for (const at of this.seen(0.1)) {
      const isFree = at.y > end.y - 9
        && taken.every(({ x }, i) =>
          Math.abs(x - at.x) > (i ? 34 : NAMED + 17));
      if (isFree) taken.push(at);
    }
    return taken.map(({ x, y, weight }, i) => shape("text",
      { class: "hero-weight", x: i ? x : Math.max(x, NAMED), y: y + 14 },
      i ? percent(weight)
        : say("hero.attention", { percent: percent(weight) })));
  }

  /** Tokens before the last with at least this weight, the largest first. */
  seen(least) {
    const { weights } = this.look;
    return ranking(weights).flatMap((i) => {
      const place = i < weights.length - 1 && weights[i] >= least
        && this.place(i);
      return place ? [{ ...place, weight: weights[i] }] : [];
    });
  }
}

/** From below a token down to a height, and there into the last one's stream. */
function curve({ x, y: top }, end, y, attributes) {
  const bend = x + 0.45 * (end.x - x);
  return shape("path", { ...attributes,
    d: `M${x} ${top}C${x} ${y} ${bend} ${y} ${end.x} ${y}` });
}
