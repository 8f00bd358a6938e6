// <live-beam>: beam search as a growing tree, with greedy search below it.
import { CachedStepper } from "../cache.js";
import { beamSteps } from "../generation.js";
import { define, LiveFigure } from "./figure.js";
import { make, shape, slider, textBox } from "./parts.js";
import { say, visible } from "./strings.js";

const MOST_STEPS = 8;
const WIDE = 92, HIGH = 44; // of a place in the tree, in pixels

class LiveBeam extends LiveFigure {
  static key = "beam";

  parts() {
    this.stepper = new CachedStepper(this.library.build());
    const run = () => this.run();
    this.text = textBox(
      say("next.prompt"), this.getAttribute("text") ?? "", run);
    this.beams = slider(say("beam.beams"),
      { min: 1, max: 4, value: this.number("beams", 3) }, run);
    this.steps = slider(say("beam.steps"),
      { min: 1, max: MOST_STEPS, value: this.number("steps", 5) }, run);
    this.tree = make("div",
      { className: "live-scroll", tabIndex: 0, role: "group",
        "aria-label": say("beam.title") });
    this.best = make("ul", { className: "live-best" });
    return [
      this.text.field,
      make("div", { className: "live-row" },
        this.beams.field, this.steps.field),
      this.tree, this.best,
    ];
  }

  run() {
    const { ids } = this.read(this.text.input.value || "\n", Infinity);
    const root = visible(this.library.tokenizer.decode(ids.slice(-1)));
    const beams = this.search(ids, this.beams.value);
    const greedy = this.search(ids, 1);
    const steps = this.steps.value;
    const best = beams.at(-1)[0], only = greedy.at(-1)[0];
    const sentence = say("beam.tree", {
      steps, beams: this.beams.value, best: this.inWords("beam.best", best),
    });
    const high = HIGH * (this.beams.value + 1) + 36;
    const picture = shape("svg", {
      role: "img", "aria-label": sentence, class: "live-tree",
      width: WIDE * (steps + 1), height: high,
      viewBox: `0 0 ${WIDE * (steps + 1)} ${high}`,
    });
    picture.append(...this.draw(beams, root, 0, best));
    picture.append(shape("line", { x1: 0, x2: WIDE * (steps + 1),
      y1: high - HIGH - 8, y2: high - HIGH - 8, class: "live-rule" }));
    picture.append(...this.draw(greedy, root, this.beams.value + 0.55, only));
    this.tree.replaceChildren(picture);
    this.best.replaceChildren(
      make("li", {}, this.inWords("beam.best", best)),
      make("li", {}, this.inWords("beam.greedy", only)));
    this.tell(sentence);
  }

  /** The open beams after each step: {tokens, logProb, parent}. */
  search(prompt, nBeams) {
    // One step more than is shown, for at the last the beams are closed.
    const rules = { nBeams, maxNewTokens: this.steps.value + 1 };
    const steps = [];
    for (const { beams, parents } of beamSteps(this.stepper, prompt, rules))
      steps.push(beams.map((beam, i) => ({ ...beam, parent: parents[i] })));
    return steps.slice(0, -1);
  }

  inWords(key, { tokens, logProb }) {
    const text = visible(this.library.tokenizer.decode(tokens));
    return say(key, { text, sum: logProb.toFixed(2).replace("-", "−") });
  }

  /** Boxes and lines; those on the way to the winner are strong. */
  draw(steps, root, first, winner) {
    const y = (place) => 14 + HIGH * (first + place);
    const drawn = [this.box(root, "", 0, y(0), "live-won")];
    steps.forEach((beams, n) => beams.forEach((beam, place) => {
      const won = beam.tokens.every((token, i) => token === winner.tokens[i]);
      const goesOn = steps[n + 1]?.some(({ parent }) => parent === place)
        ?? true;
      const kind = won ? "live-won" : goesOn ? "live-open" : "live-lost";
      const from = n === 0 ? 0 : beam.parent;
      const x = WIDE * (n + 1);
      drawn.unshift(shape("path", { class: kind, d: `M${x - 18} ${y(from) + 15}`
        + `C${x - 6} ${y(from) + 15} ${x - 12} ${y(place) + 15} `
        + `${x} ${y(place) + 15}` }));
      const token = this.library.tokenizer.decode(beam.tokens.slice(-1));
      drawn.push(this.box(visible(token),
        beam.logProb.toFixed(2).replace("-", "−"), x, y(place), kind));
    }));
    return drawn;
  }

  box(token, sum, x, y, kind) {
    const cut = token.length > 9 ? `${token.slice(0, 8)}…` : token;
    return shape("g", { class: kind },
      shape("rect", { x: x + 0.5, y: y - 1, width: WIDE - 19, height: 32,
        rx: 5 }),
      shape("text", { x: x + (WIDE - 18) / 2, y: y + (sum ? 12 : 19) }, cut),
      shape("text", { x: x + (WIDE - 18) / 2, y: y + 26, class: "live-sum" },
        sum));
  }
}

define("live-beam", LiveBeam);
