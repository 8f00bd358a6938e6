// <live-probe>: change one token and see which positions move, in a correct
// program and in wrong ones; next to it, what else notices each bug.
import { attend, mixValues } from "../attention.js";
import { linear, softmax, transposed } from "../tensor.js";
import { define, LiveFigure } from "./figure.js";
import { make, select, shape, TokenRow } from "./parts.js";
import { say } from "./strings.js";
import { Untrained } from "./untrained.js";

const SIZES = { vocab: 26, length: 8, width: 32, heads: 2, blocks: 2 };
const TEXT = "probable", FIRST = "a".charCodeAt(0);
const TOLERANCE = 1e-5; // of the spread of the logits; below it is rounding
const EDGE = 46, LEAST = 20, MOST = 34; // margin and cells of the map

/** q kᵀ / √Dh of each head, −∞ where a query may not look. */
function scored(q, k, sees) {
  return q.map((head, h) => linear(head, { weight: k[h] }).map((row, t) =>
    row.map((product, s) =>
      (sees(t, s) ? product / Math.sqrt(head[0].length) : -Infinity))));
}

const low = (t, s) => s <= t;
const rows = (scores) => scores.map((head) => head.map(softmax));

/** Attention with one mistake each. */
const WRONG = {
  no_mask: (q, k, v) => mixValues(rows(scored(q, k, () => true)), v),
  next_token: (q, k, v) =>
    mixValues(rows(scored(q, k, (t, s) => s <= t + 1)), v),
  over_queries: (q, k, v) => mixValues(scored(q, k, low).map((head) =>
    transposed(transposed(head).map(softmax))), v),
  // (H, T, Dh) read as (T, H, Dh): the rows stand at other positions.
  merged_by_view: (q, k, v) => {
    const heads = mixValues(rows(scored(q, k, low)), v), all = heads.flat();
    return heads.map((head, h) => head.map((_, t) => all[t * heads.length + h]));
  },
  // In a batch of one text nobody else is there.
  across_batch: (q, k, v) => v,
  no_scale: (q, k, v) => mixValues(rows(scored(q, k, low).map((head) =>
    head.map((row) => row.map((score) => Math.sqrt(q[0][0].length) * score)))), v),
};

/** The model of a program; a bug outside of it leaves it as it is. */
export function suspect(drawn, program) {
  return drawn.build({ attend: WRONG[program] ?? attend });
}

/** Which positions (rows) move when one token (column) changes. */
export function reach(model, ids, vocab) {
  const before = model.forward(ids);
  const all = before.flatMap((row) => [...row]);
  const mean = all.reduce((sum, x) => sum + x, 0) / all.length;
  const spread = Math.sqrt(
    all.reduce((sum, x) => sum + (x - mean) ** 2, 0) / all.length);
  const columns = ids.map((_, j) => model.forward(changed(ids, j, vocab)).map(
    (row, i) => row.some((x, n) =>
      Math.abs(x - before[i][n]) > TOLERANCE * spread)));
  return ids.map((_, i) => columns.map((column) => column[i]));
}

function changed(ids, j, vocab) {
  return ids.map((id, i) => (i === j ? (id + 1) % vocab : id));
}

class LiveProbe extends LiveFigure {
  static key = "probe";

  parts() {
    this.recorded = JSON.parse(this.getAttribute("recorded"));
    this.names = Object.keys(this.recorded.programs);
    const first = Math.max(0, this.names.indexOf(this.getAttribute("program")));
    this.program = select(say("probe.program"),
      this.names.map((name, i) => [i, say(`probe.${name}`)]), first, () => this.run());
    this.drawn = new Untrained(SIZES, this.number("seed", 0));
    this.ids = [...TEXT].map((letter) => letter.charCodeAt(0) - FIRST);
    this.token = this.number("token", 5) - 1;
    this.tokens = new TokenRow(say("probe.choose"), (token) => {
      this.token = token;
      this.show();
    });
    this.tokens.set([...TEXT]);
    this.map = make("div", { className: "probe-map" });
    this.map.addEventListener("click", (event) => this.choose(event));
    this.losses = make("p");
    this.checks = make("ul", { className: "probe-checks" });
    return [
      make("div", { className: "live-row" }, this.program.field),
      make("div", {}, make("p", { className: "probe-label" },
        say("probe.change")), this.tokens.element),
      make("div", { className: "probe-stage" }, this.map,
        make("div", {}, this.losses, this.checks)),
    ];
  }

  choose({ clientX }) {
    const { left } = this.map.firstChild.getBoundingClientRect();
    const j = Math.floor((clientX - left - EDGE) / this.cell);
    if (j < 0 || j >= this.ids.length) return;
    this.token = j;
    this.show();
  }

  run() {
    const program = this.names[this.program.value];
    this.moved = reach(suspect(this.drawn, program), this.ids, SIZES.vocab);
    const { reported, in_use: used, fails } = this.recorded.programs[program];
    const { reported: right } = this.recorded.programs.right;
    this.losses.replaceChildren(...[say("probe.reports"),
      make("b", {}, reported.toFixed(2)), say("probe.right-reports", {
        right: right.toFixed(2), used: used.toFixed(2) })]);
    this.checks.replaceChildren(...this.recorded.lines.map((line) => {
      const isWrong = fails.includes(line);
      return make("li", { className: isWrong ? "probe-fails" : "" },
        make("span", {}, say(isWrong ? "probe.cross" : "probe.tick")),
        say(`probe.line-${line}`),
        isWrong ? make("b", {}, say("probe.fails")) : "");
    }));
    this.show();
  }

  show() {
    const { token, moved } = this;
    const { fails } = this.recorded.programs[this.names[this.program.value]];
    this.tokens.mark(token);
    const all = moved.flatMap((row, i) => (row[token] ? [i] : []));
    const early = all.filter((i) => i < token).length;
    const isBlind = all.length - early < this.ids.length - token;
    const kind = early ? "early" : isBlind ? "blind" : "good";
    const sentence = say("probe.sentence", {
      n: token + 1, letter: TEXT[token], other: this.other(token),
      moved: all.map((i) => i + 1).join(", "),
      verdict: say(`probe.${kind}`, { early }),
      fails: fails.length, lines: this.recorded.lines.length,
    });
    this.draw(sentence);
    this.tell(sentence);
  }

  /** The letter that takes a token's place. */
  other(token) {
    const id = changed(this.ids, token, SIZES.vocab)[token];
    return String.fromCharCode(FIRST + id);
  }

  draw(sentence) {
    const n = this.ids.length, room = this.map.clientWidth || 320;
    const cell = this.cell = Math.max(LEAST,
      Math.min(MOST, Math.floor((room - EDGE - 4) / n)));
    const side = EDGE + n * cell + 4;
    const at = (i) => EDGE + (i + 0.5) * cell;
    const text = (x, y, words, kind = "") =>
      shape("text", { x, y, class: kind }, words);
    const cells = this.moved.flatMap((row, i) => row.map((moves, j) => {
      const kind = moves ? (j > i ? "future" : "moves") : j > i ? "still" : "blind";
      return shape("g", { class: `probe-${kind}` },
        shape("rect", { x: EDGE + j * cell + 1, y: EDGE + i * cell + 1,
          width: cell - 2, height: cell - 2, rx: 2 }),
        kind === "future" ? text(at(j), at(i) + 5, "×") : "",
        kind === "blind" ? text(at(j), at(i) + 5, "–") : "");
    }));
    const letters = [...TEXT];
    this.map.replaceChildren(shape("svg", { viewBox: `0 0 ${side} ${side}`,
      width: side, height: side, role: "img", "aria-label": sentence },
    text(EDGE, 13, say("probe.columns"), "live-start"),
    shape("text", { class: "live-end",
      transform: `translate(13 ${EDGE}) rotate(-90)` }, say("probe.rows")),
    ...letters.map((letter, j) => text(at(j), EDGE - 7,
      j === this.token ? this.other(j) : letter,
      j === this.token ? "probe-letter probe-new" : "probe-letter")),
    ...letters.map((letter, i) => text(EDGE - 12, at(i) + 5,
      i === this.token ? this.other(i) : letter,
      i === this.token ? "probe-letter probe-new" : "probe-letter")),
    ...cells,
    shape("rect", { x: EDGE + this.token * cell, y: EDGE, width: cell,
      height: n * cell, rx: 3, class: "probe-column" })));
  }
}

define("live-probe", LiveProbe);
