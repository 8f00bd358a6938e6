// <live-train>: minimal.py learns a text of the reader's, in a worker. Worker
// and texts come with the first press; until then there is a recorded run.
import { define, LiveFigure } from "./figure.js";
import { loadScript } from "./library.js";
import { button, download, field, make, shape } from "./parts.js";
import { say } from "./strings.js";

const LEAST = 20_000, MOST = 2_000_000; // characters of a text
const SIGNS = 1000; // different ones: each has a row in two matrices
const SPOKEN = 15_000; // ms between two sentences for a screen reader
const KEPT = 10; // seconds after which a sample is kept for comparison
const BINS = 200; // points of the curve, each the mean of some steps
const WIDTH = 330, HEIGHT = 220, LEFT = 44, RIGHT = 10, TOP = 12, BOTTOM = 42;

class LiveTrain extends LiveFigure {
  static key = "train";

  parts() {
    this.texts = make("select", { onchange: () => this.choose() },
      ...["plays", "stories", "python", "own"].map((name) =>
        make("option", { value: name, selected: name === this.getAttribute("text") },
          say(`train.${name}`))));
    this.own = make("textarea", { rows: 5, spellcheck: false });
    this.ownField = field(say("train.paste"), this.own);
    this.main = button(say("train.train"), () => this.press());
    this.one = button(say("train.one"), () => this.command({ step: true }));
    this.again = button(say("train.reset"), () => this.reset());
    this.download = button(say("train.download"), () => this.command({ save: true }));
    this.chart = make("div", { className: "train-chart" });
    this.samples = make("ol", { className: "train-samples" });
    this.stage = make("div", { className: "train-stage" }, this.chart, this.samples);
    this.reset();
    return [
      make("div", { className: "live-row" }, field(say("train.text"), this.texts),
        this.main, this.one, this.again, this.download),
      this.ownField, this.stage,
    ];
  }

  run() {
    this.tell(say("train.ready"));
  }

  /** The recorded run stays until the reader's own begins. */
  replace() {
    if (this.picture) this.picture.after(this.root);
    else this.append(this.root);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.worker?.terminate();
  }

  /** Back to before the first step; the worker and what it does are dropped. */
  reset() {
    this.worker?.terminate();
    Object.assign(this, { worker: null, starting: null, running: false,
      about: null, losses: [], seconds: 0, kept: [] });
    this.ownField.hidden = this.texts.value !== "own";
    this.stage.hidden = true;
    if (this.picture) this.picture.hidden = false;
    this.controls();
  }

  choose() {
    this.reset();
    this.tell(say("train.ready"));
  }

  controls() {
    const begun = this.losses.length > 0, done = this.about?.done;
    this.main.textContent = say(this.running ? "train.pause"
      : begun ? "train.go-on" : "train.train");
    this.main.disabled = Boolean(done);
    this.one.disabled = this.running || Boolean(done);
    this.again.disabled = !begun;
    this.download.disabled = !begun;
  }

  press() {
    this.running = !this.running;
    this.command({ run: this.running });
    this.controls();
  }

  /** Tell the worker, which is made when it is first needed. */
  async command(message) {
    try {
      await (this.starting ??= this.start());
      this.worker?.postMessage(message);
    } catch (error) {
      this.reset();
      this.now(error.message);
    }
  }

  /** Load worker and texts, and begin a run. */
  async start() {
    this.now(say("train.loading"));
    this.course ??= await loadScript(this.getAttribute("engine"));
    const own = this.own.value.toWellFormed?.() ?? this.own.value;
    const text = this.texts.value === "own" ? own
      : this.course.texts[this.texts.value];
    const wrong = refusal(text);
    if (wrong) throw new Error(wrong);
    // A page opened as a file may start no worker but one of its own making.
    const blob = new Blob([this.course.source], { type: "text/javascript" });
    const address = URL.createObjectURL(blob);
    this.worker = new Worker(address);
    URL.revokeObjectURL(address);
    this.worker.onerror = (event) => {
      this.reset();
      this.now(say("train.broken", { reason: event.message }));
    };
    this.worker.onmessage = ({ data }) => this.hear(data);
    this.worker.postMessage({ start: { text, seed: this.number("seed", 0) } });
  }

  /** What the worker says: what it has made, how far it is, the weights. */
  hear(data) {
    if (data.saved) return this.hand(data.saved);
    if (data.prompt !== undefined) {
      this.about = data;
      this.stage.hidden = false;
      if (this.picture) this.picture.hidden = true;
      return;
    }
    this.losses.push(...data.losses);
    this.seconds = data.seconds;
    if (data.done) Object.assign(this.about, { done: true });
    if (data.done) this.running = false;
    if (data.sample !== undefined) this.keep(data.sample);
    // Those who want no motion see the curve with each sample.
    if (data.sample !== undefined || !still()) this.draw();
    const n = this.losses.length;
    if (n === 0) return;
    const sentence = say(data.done ? "train.done" : "train.sentence", {
      step: count(n), steps: count(this.about.steps),
      seconds: this.seconds.toFixed(1), loss: this.recent().toFixed(2),
      uniform: Math.log(this.about.V).toFixed(2), all: this.about.V,
      parameters: count(this.about.parameters),
    });
    this.sentence.textContent = sentence;
    const quiet = performance.now() - (this.said ?? -SPOKEN);
    if (!this.running || quiet > SPOKEN) this.now(sentence);
    this.controls();
  }

  /** Say a sentence at once. */
  now(text) {
    this.said = performance.now();
    clearTimeout(this.pause);
    this.sentence.textContent = this.spoken.textContent = text;
  }

  /** The mean loss of the last steps: a single batch says little. */
  recent() {
    const last = this.losses.slice(-20);
    return last.reduce((sum, loss) => sum + loss, 0) / last.length;
  }

  /** Of all samples the first, that after ten seconds, and the last. */
  keep(text) {
    const { kept, seconds } = this, sample = { text, seconds, step: this.losses.length };
    const isNext = kept.length === 0 || kept.length === 1
      || (kept.length === 2 && kept[1].seconds >= KEPT);
    kept.splice(isNext ? kept.length : kept.length - 1, 1, sample);
    this.samples.replaceChildren(...kept.map(({ text, seconds, step }) =>
      make("li", {}, make("p", {}, say(step ? "train.after" : "train.before",
        { seconds: seconds.toFixed(0), step: count(step) })),
      make("p", { className: "train-text" },
        make("b", {}, this.about.prompt), text))));
  }

  /** Loss by step, with the loss of a uniform guess. */
  draw() {
    const { steps, V } = this.about, guess = Math.log(V);
    const top = Math.ceil(guess + 0.2);
    const x = (step) => LEFT + (WIDTH - LEFT - RIGHT) * step / steps;
    const y = (loss) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - loss / top);
    const bin = Math.max(1, Math.ceil(steps / BINS)), points = [];
    for (let i = 0; i < this.losses.length; i += bin) {
      const part = this.losses.slice(i, i + bin);
      const mean = part.reduce((sum, loss) => sum + loss, 0) / part.length;
      points.push(`${x(i + part.length / 2).toFixed(1)},${y(Math.min(mean, top)).toFixed(1)}`);
    }
    const text = (at, up, kind, words) => shape("text",
      { x: at, y: up, class: kind }, words);
    const ticks = [0, 1, 2, 3, 4].map((i) => i * steps / 4);
    this.chart.replaceChildren(shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img", "aria-label": say("train.chart", {
        step: count(this.losses.length), uniform: guess.toFixed(2),
        loss: this.losses.length ? this.recent().toFixed(2) : guess.toFixed(2) }) },
    ...Array.from({ length: top + 1 }, (_, loss) => shape("g", {},
      shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(loss), y2: y(loss),
        class: "live-rule" }),
      text(LEFT - 6, y(loss) + 4, "live-end", loss))),
    ...ticks.map((step) => text(x(step), HEIGHT - 24,
      step === steps ? "live-end" : "", count(step))),
    text((LEFT + WIDTH) / 2, HEIGHT - 6, "", say("train.steps")),
    shape("text", { transform: `translate(13 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)` },
      say("train.loss")),
    shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(guess), y2: y(guess),
      class: "train-guess" }),
    text(WIDTH - RIGHT, y(guess) - 5, "live-end",
      say("train.guess", { n: V, uniform: guess.toFixed(2) })),
    shape("polyline", { points: points.join(" "), class: "train-line" })));
  }

  /** Give the reader a file. */
  hand(bytes) {
    download(say("train.file"), "application/zip", bytes);
    this.now(say("train.saved", { file: say("train.file") }));
  }
}

/** Why a text can't be trained on: the rule, what it is, what to do. */
function refusal(text) {
  const n = text.length, signs = new Set(text).size;
  if (n < LEAST) return say("train.short", { least: count(LEAST), n: count(n) });
  if (n > MOST) return say("train.long", { most: count(MOST), n: count(n) });
  if (signs > SIGNS)
    return say("train.signs", { most: count(SIGNS), n: count(signs) });
  return "";
}

function count(n) {
  return Math.round(n).toLocaleString("en");
}

function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

define("live-train", LiveTrain);
