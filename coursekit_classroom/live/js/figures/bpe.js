// <live-bpe>: the merges of byte-pair encoding on the reader's own text, one
// at a time, in the order in which they were learned.
import { encodeChunk, utf8 } from "../tokenizer.js";
import { define, LiveFigure } from "./figure.js";
import { button, make, slider } from "./parts.js";
import { say, visible } from "./strings.js";

const MOST_SIGNS = 200;
const PACE = 900, SLIDE = 350; // milliseconds

class LiveBPE extends LiveFigure {
  static key = "bpe";

  parts() {
    this.text = this.textBox(say("text"), () => this.run(),
      { maxLength: MOST_SIGNS });
    this.step = slider(say("bpe.step"), { min: 0, max: 0, value: 0 }, () => {
      this.play(false);
      this.show();
    });
    this.player = button(say("play"), () => this.play(!this.timer));
    this.boxes = make("ol",
      { className: "live-boxes", "aria-label": say("bpe.tokens") });
    this.merges = make("ol", { className: "bpe-merges", tabIndex: 0,
      "aria-label": say("bpe.merges") });
    return [this.text.field,
      make("div", { className: "live-row" }, this.step.field, this.player),
      make("div", { className: "bpe-stage" }, this.boxes, this.merges)];
  }

  /** A merge after the other, from the first if the last has been reached. */
  play(on) {
    clearInterval(this.timer);
    this.timer = null;
    this.player.textContent = say(on ? "pause" : "play");
    if (!on) return;
    const last = this.steps.length - 1;
    if (this.step.value === last) this.step.value = 0;
    this.show();
    this.timer = setInterval(() => {
      if (this.step.value < last) this.step.value += 1;
      if (this.step.value === last) this.play(false);
      this.show();
    }, PACE);
  }

  run() {
    this.play(false);
    const { tokenizer } = this.library;
    const text = this.text.input.value.slice(0, MOST_SIGNS);
    this.steps = mergeSteps(tokenizer.chunks(text), tokenizer.ranks);
    const last = this.steps.length - 1;
    this.step.max = last;
    this.step.value = Math.min(this.number("step", last), last);
    this.merges.replaceChildren(...this.steps.slice(1).map(({ parts }) =>
      make("li", {}, parts.map((part) => shown(tokenizer, part)).join(" + "))));
    this.show();
  }

  show() {
    const { tokenizer } = this.library;
    const { tokens, rank, parts } = this.steps[this.step.value];
    this.boxes.replaceChildren(...tokens.map((token) =>
      this.box(token, tokenizer.ranks.get(token), parts, rank)));
    if (this.step.value === this.before + 1) this.slide();
    this.before = this.step.value;
    this.point();
    if (this.text.input.value === "") return this.tell(say("empty"));
    const bytes = this.steps[0].tokens.length;
    this.tell(rank === undefined ? say("bpe.before", { n: bytes })
      : say("bpe.sentence", {
        step: this.step.value,
        all: this.steps.length - 1,
        left: shown(tokenizer, parts[0]),
        right: shown(tokenizer, parts[1]),
        id: rank,
        n: tokens.length,
        bytes,
      }));
  }

  box(token, id, parts, rank) {
    const names = (id === rank ? parts : [token])
      .map((part) => shown(this.library.tokenizer, part));
    return make("li", { className: id === rank ? "live-new" : "" },
      make("b", {}, names[0], ...names.slice(1).map((name) => make("i", {}, name))),
      make("span", {}, id));
  }

  /** The two parts of what is new come together, and what follows with them. */
  slide() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const part of this.boxes.querySelectorAll(".live-new i"))
      part.animate([{ marginLeft: "1.25rem" }, { marginLeft: 0 }],
        { duration: SLIDE, easing: "ease-in-out" });
  }

  /** The merge that was the last, in sight within its list. */
  point() {
    [...this.merges.children].forEach((item, i) => {
      item.classList.toggle("bpe-later", i >= this.step.value);
      if (i === this.step.value - 1) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    });
    const item = this.merges.children[Math.max(0, this.step.value - 1)];
    if (item) this.merges.scrollTop = item.offsetTop - this.merges.clientHeight / 2;
  }
}

/** The tokens after each merge, over all chunks: the lowest rank goes first. */
function mergeSteps(chunks, ranks) {
  const rows = chunks.map((chunk) => {
    const states = [];
    encodeChunk(utf8(chunk), ranks, (parts, rank) => states.push({ parts, rank }));
    return { states, at: 0 };
  });
  const steps = [{ tokens: rows.flatMap(({ states }) => states[0].parts) }];
  while (true) {
    const next = ({ states, at }) => states[at + 1]?.rank ?? Infinity;
    const rank = Math.min(Infinity, ...rows.map(next));
    if (rank === Infinity) return steps;
    let parts = null;
    for (const row of rows) {
      if (next(row) !== rank) continue;
      parts ??= merged(row.states[row.at].parts, row.states[row.at + 1].parts);
      row.at++;
    }
    const tokens = rows.flatMap(({ states, at }) => states[at].parts);
    steps.push({ tokens, rank, parts });
  }
}

/** The two tokens that became one between two states of a chunk. */
function merged(before, after) {
  const i = before.findIndex((part, j) => part !== after[j]);
  return [before[i], before[i + 1]];
}

/** A token as text, or its bytes where they are half a character. */
function shown(tokenizer, token) {
  const text = visible(tokenizer.decode([tokenizer.ranks.get(token)]));
  if (!text.includes("\ufffd") && !/[\x00-\x1f]/.test(text)) return text;
  return [...token].map((byte) =>
    byte.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
}

define("live-bpe", LiveBPE);
