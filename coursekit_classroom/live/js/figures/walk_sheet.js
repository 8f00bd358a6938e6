// A sheet on which a step of the walk is drawn, from the top down. A cell's
// color says a number: the more opaque, the larger; a dash means a negative.
import { shape } from "./parts.js";
import { say } from "./strings.js";

const CELLS = 16; // of many dimensions
const LETTER = 7.9; // the width of a letter of a token

export class Sheet {
  constructor(width) {
    this.width = width;
    this.wide = width >= 440;
    this.names = this.wide ? 96 : 76; // the width of the names' column
    this.bottom = 0;
    this.rows = []; // of cells, for the arrow keys
    this.choices = []; // what a click chooses, by its place
    this.drags = []; // what can be dragged to another length
    this.start = null; // where the arrow keys begin, [row, column]
    this.svg = shape("svg", { width, "aria-hidden": true });
  }

  /** The sheet is as high as what is drawn on it. */
  finish() {
    this.svg.setAttribute("height", Math.ceil(this.bottom));
    this.svg.setAttribute("viewBox",
      `0 0 ${this.width} ${Math.ceil(this.bottom)}`);
    return this.svg;
  }

  put(element, bottom) {
    this.bottom = Math.max(this.bottom, bottom);
    this.svg.append(element);
    return element;
  }

  /** Words; y is their middle. Kinds are classes: start, end, name, role.
   *  A letter behind _ stands lower, but for tokens. */
  text(x, y, words, kinds = "start") {
    const classes = kinds.split(" ").map((kind) => `walk-${kind}`).join(" ");
    const element = shape("text", { x, y: y + 4.5, class: classes });
    const parts = kinds.includes("name") ? [words] : words.split(/_(\w)/);
    parts.forEach((part, i) => element.append(i === 0 ? part
      : shape("tspan", { dy: i % 2 ? 3 : -3,
        "font-size": i % 2 ? "0.8em" : "1em" }, part)));
    return this.put(element, y + 10);
  }

  /** The name of a row; the chosen token has the stream's color. */
  name(y, words, chosen = false) {
    return this.text(0, y, words, chosen ? "start name stream" : "start name");
  }

  rect(x, y, width, height, kinds, opacity = 1) {
    const classes = kinds.split(" ").map((kind) => `walk-${kind}`).join(" ");
    return this.put(shape("rect", { x, y, width: Math.max(0, width), height,
      class: classes, "fill-opacity": opacity }), y + height);
  }

  /** From (x, y) down or to the right, with a point at its end. */
  arrow(x, y, toX, toY) {
    const down = toX === x;
    const point = down ? `m-4 -5l4 5l4 -5` : `m-5 -4l5 4l-5 4`;
    return this.put(shape("path", { class: "walk-arrow",
      d: `M${x} ${y}L${toX} ${toY}${point}` }), Math.max(y, toY));
  }

  /** An arrow down from a row of cells, with what happens on the way. */
  down(x, width, y, toY, words) {
    const middle = x + (this.wide ? width / 2 : 8);
    this.arrow(middle, y, middle, toY);
    this.text(middle + 12, (y + toY) / 2 - 1, words, "start faint");
  }

  /** A bar of which a frame says how long it was before. */
  bar(x, y, full, share, role, before = null) {
    const drawn = this.rect(x, y - 7, full * share, 14, role);
    if (before !== null && Math.abs(before - share) > 1e-4)
      this.rect(x, y - 7, full * before, 14, "frame");
    return drawn;
  }

  /** The first numbers of a row as cells; returns their group.
   *
   *  about(i) is what a cell says, node(i) which number it is, as for
   *  `expand`. */
  cells(x, y, values, { role, width, limit, about, node, more = true,
    shown = CELLS, height = 18, sign = true }) {
    const group = shape("g", { class: `walk-cells walk-${role}` });
    const n = Math.min(shown, values.length);
    const size = width / n;
    const most = limit ?? extent(values.subarray(0, n));
    // As text: that is several times quicker than one element at a time.
    let cells = "";
    for (let i = 0; i < n; i++) {
      const opacity = Math.min(1, Math.abs(values[i]) / (most || 1)).toFixed(3);
      const dash = sign && values[i] < 0
        ? `<path d="M${x + (i + 0.3) * size} ${y}h${0.4 * size}"/>` : "";
      cells += `<g class="walk-cell"><rect x="${x + i * size}" y="${y - height / 2}"`
        + ` width="${size}" height="${height}" fill-opacity="${opacity}"/>${dash}</g>`;
    }
    group.innerHTML = cells;
    if (about) this.rows.push([...group.children].map((cell, i) =>
      Object.assign(cell, { about: () => about(i), node: node?.(i) })));
    this.put(group, y + height / 2);
    if (more && values.length > n)
      this.text(x + width + 5, y, say("walk.more", { n: values.length - n }),
        "start faint");
    return group;
  }

  /** Something else that says a number: for the arrow keys one more cell of
   *  its row, or a row of its own. Where it leads to more, go() goes there. */
  spot(element, about, node, isOwn, go) {
    const spot = shape("g", { class: "walk-spot" });
    element.replaceWith(spot);
    spot.append(element);
    Object.assign(spot, { about: () => about, node, go });
    if (go) spot.classList.add("walk-enter");
    if (isOwn) this.rows.push([]);
    this.rows.at(-1).push(spot);
  }

  /** The width of a row of cells that begins at x, with room to the right. */
  room(x, right = this.wide ? 78 : 76) {
    return this.width - x - right;
  }

  /** A part that comes from elsewhere, dx and dy away. */
  slide(element, dx, dy) {
    element.classList.add("walk-slide");
    element.style.setProperty("--dx", `${dx}px`);
    element.style.setProperty("--dy", `${dy}px`);
  }

  /** A place that can be clicked, cells included. */
  choice(x, y, width, height, choose) {
    this.choices.push({ x, y, width, height, choose });
    this.rect(x, y, width, height, "choice");
  }

  /** A row that can be chosen, all of its width; y is its middle. */
  line(y, height, choose) {
    this.choice(0, y - height / 2, this.width, height, choose);
  }

  /** A bar, from x on, that can be dragged: set(share) is called. */
  drag(x, y, full, height, set) {
    this.drags.push({ x, y, full, height, set });
    this.rect(x, y, full, height, "choice drag");
  }

  /** What can be dragged at (x, y). */
  dragAt(x, y) {
    return this.drags.find((bar) => x >= bar.x && x < bar.x + bar.full
      && y >= bar.y && y < bar.y + bar.height);
  }

  /** Do what a click at (x, y) means. */
  click(x, y) {
    this.choices.find((place) => x >= place.x && x < place.x + place.width
      && y >= place.y && y < place.y + place.height)?.choose();
  }

  /** Boxes with words, as many in a line as fit; returns the boxes' places. */
  chips(y, chips, height = 26) {
    let x = 0;
    return chips.map(({ words, below = "", kinds = "", choose }) => {
      const width = Math.max(words.length, below.length) * LETTER + 12;
      if (x > 0 && x + width > this.width) [x, y] = [0, y + height + 8];
      const box = this.rect(x, y, width, height, `chip ${kinds}`);
      const middle = x + width / 2;
      this.text(middle, y + (below ? 13 : height / 2), words, "name middle");
      if (below) this.text(middle, y + 31, below, "middle faint");
      if (choose) this.choice(x, y, width, height, choose);
      const place = { x, y, width, box };
      x += width + 3;
      return place;
    });
  }

  /** Text in lines; returns the middle of the last. */
  lines(y, words, kinds = "start", signs = this.width / 7.4) {
    let line = "";
    for (const word of words.split(" ")) {
      if (line && line.length + word.length > signs) {
        this.text(0, y, line, kinds);
        [line, y] = ["", y + 20];
      }
      line += (line ? " " : "") + word;
    }
    this.text(0, y, line, kinds);
    return y;
  }
}

/** The largest absolute value. */
export function extent(values) {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
}
