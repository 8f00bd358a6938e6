// <live-bpe>: the merges of byte-pair encoding on the reader's own text, one
// at a time, in the order in which they were learned.
import { encodeChunk, utf8 } from "../tokenizer.js";
import { define, LiveFigure } from "./figure.js";
import { make, slider, textBox } from "./parts.js";
import { say, visible } from "./strings.js";

const MOST_SIGNS = 200;

class LiveBPE extends LiveFigure {
  static key = "bpe";

  parts() {
    this.text = textBox(say("text"), this.getAttribute("text") ?? "",
      () => this.run(), { maxLength: MOST_SIGNS });
    this.step = slider(say("bpe.step"), { min: 0, max: 0, value: 0 },
      () => this.show());
    this.boxes = make("ol",
      { className: "live-boxes", "aria-label": say("bpe.tokens") });
    return [this.text.field, this.step.field, this.boxes];
  }

  run() {
    const { tokenizer } = this.library;
    const text = this.text.input.value.slice(0, MOST_SIGNS);
    this.steps = mergeSteps(tokenizer.chunks(text), tokenizer.ranks);
    const last = this.steps.length - 1;
    this.step.max = last;
    this.step.value = Math.min(this.number("step", last), last);
    this.show();
  }

  show() {
    const { tokenizer } = this.library;
    const { tokens, rank, parts } = this.steps[this.step.value];
    this.boxes.replaceChildren(...tokens.map((token) => make("li",
      { className: tokenizer.ranks.get(token) === rank ? "live-new" : "" },
      make("b", {}, shown(tokenizer, token)),
      make("span", {}, tokenizer.ranks.get(token)))));
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
