// <live-next-token>: the probabilities of the next token, and what temperature,
// top-k and top-p make of them; step, back, or let it write on.
import { CachedStepper } from "../cache.js";
import { filtered, greedy, ranking, sampler } from "../generation.js";
import { softmax } from "../tensor.js";
import { define, LiveFigure } from "./figure.js";
import { button, make, seeded, slider } from "./parts.js";
import { percent, say, visible } from "./strings.js";

const SHOWN = 10; // bars
const MANY = 500; // tokens that it writes at a press
const TURN = 20; // ms of writing between two frames
const TOP_K = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, Infinity];

class LiveNextToken extends LiveFigure {
  static key = "next";

  parts() {
    const model = this.library.build();
    this.stepper = new CachedStepper(model);
    this.text = this.textBox(say("next.prompt"), () => this.run());
    const show = () => this.show();
    this.temperature = slider(say("next.temperature"),
      { min: 0.1, max: 2, step: 0.1, value: this.number("temperature", 1) },
      show, (value) => value.toFixed(1));
    this.topK = slider(say("next.top-k"),
      { min: 0, max: TOP_K.length - 1, value: TOP_K.length - 1 }, show,
      (place) => (TOP_K[place] === Infinity ? say("next.all") : TOP_K[place]));
    this.topP = slider(say("next.top-p"),
      { min: 0.05, max: 1, step: 0.05, value: 1 }, show,
      (value) => (value === 1 ? say("next.all") : value.toFixed(2)));
    this.written = make("p", { className: "live-written" });
    this.bars = make("ol", { className: "live-bars", "aria-label": say("next.bars") });
    this.writes = button(say("next.write"), () => this.press());
    this.back = button(say("next.back"), () => this.undo(1));
    this.again = button(say("next.again"), () => this.undo(Infinity));
    return [
      this.text.field,
      make("div", { className: "live-row" }, this.temperature.field,
        this.topK.field, this.topP.field),
      make("div", { className: "live-row" },
        button(say("next.likeliest"), () => this.take(greedy(this.logits))),
        button(say("next.draw"), () => this.take(this.draw())),
        this.writes, this.back, this.again),
      this.written, this.bars,
    ];
  }

  /** A new beginning; an empty one is a new line. */
  run() {
    const { ids } = this.read(this.text.input.value || "\n", Infinity);
    if (ids.length === 0) return this.tell(say("empty"));
    this.random = seeded(this.number("seed", 0));
    this.left = 0; // tokens that it still writes
    this.stepper.prefill(ids);
    this.past = []; // what to go back to: the stepper's rows and a token each
    this.show();
  }

  get logits() {
    return this.stepper.rows[0].logits;
  }

  get how() {
    const topK = TOP_K[this.topK.value];
    return {
      temperature: this.temperature.value,
      topK: topK === Infinity ? undefined : topK,
      topP: this.topP.value,
    };
  }

  draw() {
    return sampler({ ...this.how, random: this.random })(this.logits);
  }

  add(token) {
    this.past.push({ rows: this.stepper.rows, token });
    this.stepper.step([token]);
  }

  take(token) {
    this.left = 0;
    this.add(token);
    this.show();
  }

  press() {
    this.left = this.left ? 0 : MANY;
    this.write();
  }

  /** Draw for a moment, show it, and go on with the next frame. */
  write() {
    const end = performance.now() + TURN;
    for (; this.left && performance.now() < end; this.left--)
      this.add(this.draw());
    this.show();
    if (this.left && this.isConnected) requestAnimationFrame(() => this.write());
  }

  /** Nothing is computed: the older rows are still as they were. */
  undo(n) {
    this.left = 0;
    for (; n > 0 && this.past.length; n--)
      this.stepper.rows = this.past.pop().rows;
    this.show();
  }

  show() {
    const { tokenizer } = this.library;
    const own = softmax(this.logits);
    const made = filtered(this.logits, this.how);
    const best = ranking(own).slice(0, SHOWN);
    // As long as the largest: of 3% little would be seen.
    this.largest = Math.max(...best.flatMap((id) => [own[id], made[id]]));
    this.bars.replaceChildren(...best.map((id) =>
      this.bar(tokenizer.decode([id]), own[id], made[id], id)));
    const added = tokenizer.decode(this.past.map(({ token }) => token));
    this.written.replaceChildren(
      say("next.written"), this.text.input.value, make("mark", {}, added));
    this.writes.textContent = say(this.left ? "next.stop" : "next.write");
    this.back.disabled = this.again.disabled = this.past.length === 0;
    this.tell(say("next.sentence", {
      token: visible(tokenizer.decode([best[0]])),
      percent: percent(made[best[0]]),
      n: made.reduce((n, p) => n + (p > 0), 0).toLocaleString("en"),
      all: made.length.toLocaleString("en"),
    }));
  }

  bar(text, own, made, id) {
    const name = visible(text);
    const press = button(name, () => this.take(id));
    press.setAttribute("aria-label",
      `${say("next.take", { token: name })}, ${percent(made)}`);
    const track = make("span", { className: "live-track" });
    track.style.setProperty("--own", own / this.largest);
    track.style.setProperty("--made", made / this.largest);
    return make("li", {}, press, track,
      make("span", {}, made === 0 ? say("next.none") : percent(made)));
  }
}

define("live-next-token", LiveNextToken);
