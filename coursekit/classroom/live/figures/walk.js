// <live-walk>: twelve steps through the whole model on one text, with what it
// computes, the line of minimal.py that does it, and what one can change.
import { watch } from "../activations.js";
import { greedy, sampler } from "../generation.js";
import { softmax } from "../tensor.js";
import { define, LiveFigure } from "./figure.js";
import { button, make } from "./parts.js";
import { say, visible } from "./strings.js";
import { Answer } from "./walk_answer.js";
import { ATTENTION_STEPS } from "./walk_attention.js";
import { CODE } from "./walk_code.js";
import { controls } from "./walk_controls.js";
import { ModelMap } from "./walk_map.js";
import { Sheet } from "./walk_sheet.js";
import { fromAddress, isChanged, STEPS, toAddress, UNCHANGED } from "./walk_state.js";
import { STREAM_STEPS } from "./walk_stream.js";
import { formula } from "./walk_strings.js";
import { FIRST_STEPS } from "./walk_vectors.js";

const DRAW = [...FIRST_STEPS, ...ATTENTION_STEPS, ...STREAM_STEPS];
const PACE = 6000; // milliseconds a step while it plays
const REST = 200; // milliseconds after a slider was moved

class LiveWalk extends LiveFigure {
  static key = "walk";

  connectedCallback() {
    super.connectedCallback();
    this.followed ??= () => this.follow();
    window.addEventListener("hashchange", this.followed);
    if (this.isMine()) this.load();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    window.removeEventListener("hashchange", this.followed);
    clearInterval(this.timer);
    clearTimeout(this.writing);
  }

  /** Whether the page's address speaks of this walk: its page's first. */
  isMine() {
    return /^#walk[-=]/.test(location.hash)
      && document.querySelector("live-walk") === this;
  }

  parts() {
    this.model = this.library.build();
    this.words = (this.getAttribute("swap") ?? "text").split(" ");
    this.sizes = { token: this.tokensOf(0).length,
      block: this.model.blocks.length, head: this.library.config.n_heads };
    this.cache = new Map();
    const [block, head] = this.pointing();
    const place = (name, otherwise) =>
      Math.min(this.sizes[name], this.number(name, otherwise)) - 1;
    this.start = { ...UNCHANGED, word: 0, step: this.number("step", 1),
      token: place("token", this.sizes.token), block: place("block", block),
      head: place("head", head), key: null, temperature: 1 };
    this.state = { ...this.start };
    this.drawn = null;
    this.choose = Object.fromEntries(["token", "block", "head", "key"].map(
      (name) => [name, (value) => this.change({ [name]: value })]));
    return this.build();
  }

  /** The block and head, from 1, that look hardest from the last token at the
   *  one that the model answers; the first if it answers with a new one. */
  pointing() {
    const ids = this.tokensOf(0), { blocks, logits } = this.states(UNCHANGED, 0);
    const answer = greedy(logits.at(-1));
    let found = [1, 1, 0];
    blocks.forEach(({ weights }, b) => weights.forEach((map, h) =>
      map.at(-1).forEach((share, s) => {
        if (ids[s] === answer && share > found[2]) found = [b + 1, h + 1, share];
      })));
    return found;
  }

  build() {
    this.map = new ModelMap(this.sizes.block, (goal) => this.change(goal));
    this.heading = make("p", { className: "walk-heading" });
    this.readout = make("p", { className: "walk-readout" });
    this.picture_ = make("div", { className: "walk-picture", tabIndex: 0,
      role: "group", "aria-label": say("walk.picture"),
      onkeydown: (event) => this.press(event),
      onclick: (event) => this.click(event),
      onpointerover: (event) => this.point(event.target.closest(".walk-cell")),
    });
    this.resized = new ResizeObserver(() => requestAnimationFrame(() => {
      if (this.sheet && this.picture_.clientWidth !== this.width) this.draw();
    }));
    this.resized.observe(this.picture_);
    this.controls = make("div", { className: "walk-controls" });
    this.formula = make("p", { className: "walk-formula" });
    this.code = make("pre", { tabIndex: 0 });
    this.answer = new Answer(() => this.change({ ...UNCHANGED, word: 0 }));
    this.lines = make("div", { className: "walk-lines" }, this.formula,
      this.code, this.sentence);
    return [make("div", { className: "walk-body" }, this.map.element,
      make("div", { className: "walk-center" }, this.heading, this.controls,
        this.readout, this.picture_),
      make("div", { className: "walk-side" }, this.lines, this.answer.element)),
    this.transport()];
  }

  /** Twelve marks, and what goes from one to the next. */
  transport() {
    this.scrubber = make("input", { type: "range", min: 1, max: STEPS, step: 1,
      "aria-label": say("walk.steps"),
      oninput: () => this.change({ step: this.scrubber.valueAsNumber }) });
    this.marks = Array.from({ length: STEPS }, (_, i) =>
      make("span", { onclick: () => this.change({ step: i + 1 }) }, `${i + 1}`));
    this.player = button(say("walk.play"), () => this.play(!this.timer));
    this.back = button(say("walk.back"), () => this.change({ step: this.state.step - 1 }));
    this.next = button(say("walk.next"), () => this.change({ step: this.state.step + 1 }));
    return make("div", { className: "walk-transport" }, this.answer.now,
      make("div", { className: "walk-scrubber" }, this.scrubber,
        make("div", { className: "walk-marks", "aria-hidden": true }, ...this.marks)),
      make("div", { className: "walk-buttons" }, this.back, this.player, this.next,
        button(say("walk.reset"), () => this.change(this.start))));
  }

  replace() {
    this.lines?.append(this.sentence); // it stands next to the picture
    super.replace();
  }

  run() {
    if (this.isMine()) {
      Object.assign(this.state, this.heard());
      this.scrollIntoView();
    }
    this.show();
  }

  /** What the address says. */
  heard() {
    return fromAddress(location.hash, this.start, this.words, this.sizes);
  }

  /** Go where the address says, as the reader has changed it. */
  follow() {
    if (this.dataset.state !== "ready" || !this.isMine()) return;
    this.change(this.heard());
    this.scrollIntoView();
  }

  /** Another state: shown, and written into the address; quietly if a
   *  control is still being moved. */
  change(changes, quiet = false) {
    const step = Math.max(1, Math.min(STEPS, changes.step ?? this.state.step));
    const moved = ["word", "token", "block", "head"].some((name) =>
      name in changes && changes[name] !== this.state[name]);
    if (moved) changes = { key: null, ...changes };
    if ("word" in changes || "token" in changes)
      changes = { weight: null, ...changes };
    if (moved || step !== this.state.step) this.drawn = null;
    this.entered = step !== this.state.step;
    this.state = { ...this.state, ...changes, step };
    this.show(quiet);
    clearTimeout(this.writing);
    // Browsers take no more than a few addresses a second.
    if (quiet) this.writing = setTimeout(() => this.write(), REST);
    else this.write();
  }

  /** Write the state into the address. */
  write() {
    try {
      history.replaceState(history.state, "",
        toAddress(this.state, this.start, this.words));
    } catch { /* a frame without an address of its own */ }
  }

  tokensOf(word) {
    const [first] = this.words;
    const text = this.getAttribute("text").replace(first, this.words[word]);
    return this.read(text, this.library.config.max_len).ids;
  }

  /** The states of the model, changed or not; each is computed once. */
  states(changes, word) {
    const { root, mask, muted, cut, straight, weight } = changes;
    const key = JSON.stringify([word, root, mask, muted, cut, straight, weight,
      weight && this.state.token]);
    if (!this.cache.has(key)) {
      if (this.cache.size > 40) this.cache.clear();
      const query = this.state?.token;
      const before = isChanged(changes) ? this.states(UNCHANGED, word) : null;
      const found = watch(this.model, this.tokensOf(word), { root, mask, muted,
        cut, straight, weight: weight && { ...weight, query } }, before);
      found.name = (id) => visible(this.library.tokenizer.decode([id]));
      this.cache.set(key, found);
    }
    return this.cache.get(key);
  }

  show(quiet = false) {
    const { state } = this;
    const ids = this.tokensOf(state.word);
    const states = this.states(state, state.word);
    const intact = this.states(UNCHANGED, 0);
    const names = ids.map(states.name);
    if (state.key === null) {
      const row = states.blocks[state.block].weights[state.head][state.token];
      state.key = row.indexOf(Math.max(...row));
    }
    this.walk = { ids, names, states, intact, state, choose: this.choose,
      model: this.model, table: this.model.embedding.weight,
      tokenizer: this.library.tokenizer, drawn: this.drawn,
      text: this.library.tokenizer.decode(ids), effects: this.effects() };
    if (!quiet) this.renew();
    this.draw();
    this.answer.show(intact.logits[state.token], states.logits[state.token],
      states.name, names[state.token], isChanged(state) || state.word > 0);
    this.describe();
  }

  /** Other controls; the focus stays where it was. */
  renew() {
    const { activeElement } = document;
    const name = this.controls.contains(activeElement)
      && activeElement.dataset.name;
    this.controls.replaceChildren(...controls(this));
    if (name) this.controls.querySelector(`[data-name="${name}"]`)?.focus();
  }

  /** The picture alone, as wide as there is room. */
  draw() {
    this.width = this.picture_.clientWidth;
    if (!this.width) return; // within something closed: drawn when it opens
    this.sheet = new Sheet(this.width);
    this.blanks = DRAW[this.state.step - 1](this.sheet, this.walk);
    const svg = this.sheet.finish();
    svg.classList.toggle("walk-entered", Boolean(this.entered));
    this.picture_.replaceChildren(svg);
    this.readout.textContent = say("walk.hint");
    this.cursor = null;
  }

  describe() {
    const { step, block, head } = this.state;
    const title = say(`walk.${step}.title`);
    this.heading.textContent = say("walk.step", { step, title });
    this.formula.replaceChildren(...formula(say(`walk.${step}.formula`)));
    this.code.textContent = CODE[step];
    const { variant = "", ...blanks } = this.blanks ?? {};
    this.tell(say(`walk.${step}.sentence${variant}`, { block: block + 1,
      head: head + 1, token: this.walk.names[this.state.token], ...blanks }));
    this.scrubber.value = step;
    this.scrubber.setAttribute("aria-valuetext", say("walk.step", { step, title }));
    this.marks.forEach((mark, i) => mark.classList.toggle("walk-here", i + 1 === step));
    this.back.disabled = step === 1;
    this.next.disabled = step === STEPS;
    this.map.show(this.state);
  }

  /** How much the answer loses without each head of the block: computed one
   *  at a time, when nothing else has to be done. */
  effects() {
    const { state } = this;
    if (state.step !== 8) return [];
    const key = JSON.stringify({ ...state, key: 0, head: 0, step: 0, muted: 0 });
    if (this.effectsKey !== key) {
      this.effectsKey = key;
      this.found = [];
      setTimeout(() => this.measure(key));
    }
    return this.found;
  }

  measure(key) {
    if (this.effectsKey !== key || this.state.step !== 8) return;
    const { state } = this, h = this.found.length, t = state.token;
    const plain = { ...state, muted: [] };
    const before = softmax(this.states(plain, state.word).logits[t]);
    const best = before.indexOf(Math.max(...before));
    const without = { ...state, muted: [[state.block, h]] };
    const after = softmax(this.states(without, state.word).logits[t]);
    this.found.push(after[best] - before[best]);
    if (this.found.length < this.sizes.head) setTimeout(() => this.measure(key));
    else this.draw();
  }

  drawToken() {
    this.entered = true;
    const pick = sampler({ temperature: this.state.temperature });
    const { states, state } = this.walk;
    this.drawn = pick(states.logits[state.token]);
    this.show();
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = null;
    this.player.textContent = say(on ? "walk.pause" : "walk.play");
    if (!on) return;
    const go = () => {
      if (this.state.step === STEPS) return this.play(false);
      this.change({ step: this.state.step + 1 });
    };
    if (this.state.step === STEPS) this.change({ step: 1 });
    else go();
    this.timer = setInterval(go, PACE);
  }

  /** Say a cell's number and mark it. */
  point(cell) {
    this.picture_.querySelector(".walk-on")?.classList.remove("walk-on");
    if (!cell?.about) return;
    cell.classList.add("walk-on");
    this.readout.textContent = cell.about();
  }

  click(event) {
    const box = this.sheet.svg.getBoundingClientRect();
    this.sheet.click(event.clientX - box.left, event.clientY - box.top);
  }

  /** Arrow keys go over the cells. */
  press(event) {
    const { rows } = this.sheet;
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1],
      ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!(event.key in moves) || !rows.length) return;
    event.preventDefault();
    const [down, right] = this.cursor ? moves[event.key] : [0, 0];
    const clamp = (value, n) => Math.max(0, Math.min(n - 1, value));
    const [row, column] = this.cursor ?? [0, 0];
    const r = clamp(row + down, rows.length);
    this.cursor = [r, clamp(column + right, rows[r].length)];
    const cell = rows[r][this.cursor[1]];
    this.point(cell);
    clearTimeout(this.pause);
    this.pause = setTimeout(() => {
      this.spoken.textContent = this.readout.textContent;
    }, 300);
  }
}

define("live-walk", LiveWalk);
