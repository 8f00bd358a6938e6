// <live-beam>: beam search as a growing tree, with greedy search below it.
import { CachedStepper } from "../cache.js";
import { beamSteps } from "../generation.js";
import { define, LiveFigure } from "./figure.js";
import { make, shape, slider } from "./parts.js";
import { say, signed, visible } from "./strings.js";

const MOST_STEPS = 8;
const WIDE = 92, HIGH = 44; // of a place in the tree, in pixels

class LiveBeam extends LiveFigure {
  static key = "beam";

  parts() {
    this.stepper = new CachedStepper(this.library.build());
    const run = () => this.run();
    this.text = this.textBox(say("next.prompt"), run);
    this.beams = slider(say("beam.beams"),
      { min: 1, max: 4, value: this.number("beams", 3) }, run);
    this.steps = slider(say("beam.steps"),
      { min: 1, max: MOST_STEPS, value: this.number("steps", 5) }, run);
    this.tree = make("div",
      { className: "live-scroll", tabIndex: 0, role: "group",
        "aria-label": say("beam.title") });
    this.other = make("p");
    // Where a text ends: by default at the end of its line.
    const { tokenizer } = this.library;
    const stop = tokenizer.known(this.getAttribute("stop") ?? "\n");
    this.stops = tokenizer.encode(stop).slice(0, 1);
    return [
      this.text.field,
      make("div", { className: "live-row" },
        this.beams.field, this.steps.field),
      this.tree, this.other,
    ];
  }

  run() {
    const { tokenizer } = this.library;
    const { ids } = this.read(this.text.input.value || "\n", Infinity);
    if (ids.length === 0) return this.tell(say("empty"));
    const beams = this.search(ids, this.beams.value);
    const greedy = this.search(ids, 1);
    const best = winner(beams), only = winner(greedy);
    const sentence = this.inWords("beam.best", best);
    const most = (steps) => Math.max(...steps.map((step) => step.length));
    const rows = most(beams);
    const width = WIDE * (this.steps.value + 1);
    const high = HIGH * (rows + most(greedy)) + 40;
    const below = HIGH * rows + 20;
    const root = visible(tokenizer.decode(ids.slice(-1)));
    const heading = (y, text) => shape(
      "text", { x: 1, y, class: "live-start" }, say(text));
    this.tree.replaceChildren(shape("svg", {
      role: "img", "aria-label": sentence, class: "live-tree",
      width, height: high, viewBox: `0 0 ${width} ${high}`,
    },
    heading(11, "beam.tree-row"), ...this.draw(beams, root, 18, best),
    heading(below + 11, "beam.greedy-row"),
    ...this.draw(greedy, root, below + 18, only)));
    this.other.textContent = this.inWords("beam.greedy", only);
    this.tell(sentence);
  }

  /** After each step the open beams, then what ended: {tokens, logProb,
   *  parent, ended}. */
  search(prompt, nBeams) {
    const steps = [], ended = new Set();
    // Room for one step more than is shown: the last would close all beams.
    const rules = {
      nBeams, stopIds: this.stops, maxNewTokens: this.steps.value + 1,
    };
    for (const search of beamSteps(this.stepper, prompt, rules)) {
      const open = search.beams.map((beam, i) => (
        { ...beam, parent: search.parents[i], length: beam.tokens.length }));
      const closed = search.finished.filter((found) => !ended.has(found));
      closed.forEach((found) => ended.add(found));
      steps.push([...open, ...closed.map(({ tokens, logProb, beam }) => (
        { tokens, logProb, parent: beam, ended: true,
          length: tokens.length + 1 }))]);
      if (steps.length === this.steps.value) break;
    }
    return steps;
  }

  inWords(key, { tokens, logProb, length }) {
    const { tokenizer } = this.library;
    return say(key, {
      beams: this.beams.value, steps: this.steps.value,
      text: tokenizer.decode(tokens).replaceAll("\n", say("newline")).trim(),
      score: signed(logProb / length),
    });
  }

  /** Boxes and lines; those on the way to the winner are strong. */
  draw(steps, root, top, best) {
    const y = (place) => top + HIGH * place;
    const way = new Set();
    steps.forEach((step) => step.forEach((beam) => {
      const isBest = beam === best || (!beam.ended && beam.tokens.length
        < best.length && beam.tokens.every((id, i) => id === best.tokens[i]));
      if (isBest) way.add(beam);
    }));
    const drawn = [this.box(root, "", 0, y(0), "live-won")];
    steps.forEach((step, n) => step.forEach((beam, place) => {
      const goesOn = !steps[n + 1] || beam.ended
        || steps[n + 1].some(({ parent }) => parent === place);
      const kind = way.has(beam) ? "live-won" : goesOn ? "" : "live-lost";
      const x = WIDE * (n + 1), from = y(beam.parent) + 15, to = y(place) + 15;
      drawn.unshift(shape("path", { class: kind,
        d: `M${x - 18} ${from} C${x - 6} ${from} ${x - 12} ${to} ${x} ${to}` }));
      const token = this.library.tokenizer.decode(beam.tokens.slice(-1));
      drawn.push(this.box(beam.ended ? say("beam.end") : visible(token),
        signed(beam.logProb), x, y(place), kind));
    }));
    return drawn;
  }

  box(token, sum, x, y, kind) {
    const cut = token.length > 8 ? `${token.slice(0, 7)}…` : token;
    const middle = x + (WIDE - 18) / 2;
    return shape("g", { class: kind },
      shape("rect", { x: x + 1, y: y - 1, width: WIDE - 20, height: 32, rx: 5 }),
      shape("text", { x: middle, y: y + (sum ? 12 : 19) }, cut),
      shape("text", { x: middle, y: y + 26, class: "live-sum" }, sum));
  }
}

/** What ended or is open at the end, with the highest mean. */
function winner(steps) {
  const score = ({ logProb, length }) => logProb / length;
  const all = [...steps.flat().filter((beam) => beam.ended),
    ...steps.at(-1).filter((beam) => !beam.ended)];
  return all.reduce((a, b) => (score(b) > score(a) ? b : a));
}

define("live-beam", LiveBeam);
