// <live-walk>: twelve steps through the whole model on one text, with what it
// computes, the line of minimal.py that does it, and what one can change.
import { watch } from "../activations.js";
import { greedy, sampler } from "../generation.js";
import { softmax } from "../tensor.js";
import { define, LiveFigure } from "./figure.js";
import { button, download, make, textBox } from "./parts.js";
import { say } from "./strings.js";
import { Answer } from "./walk_answer.js";
import { ATTENTION_STEPS } from "./walk_attention.js";
import { CODE } from "./walk_code.js";
import { controls } from "./walk_controls.js";
import { Crumbs } from "./walk_crumbs.js";
import { ModelMap } from "./walk_map.js";
import { standalone } from "./walk_save.js";
import { Sheet } from "./walk_sheet.js";
import {
  fromAddress, isChanged, LEVELS, SEEN, STEPS, toAddress, UNCHANGED,
} from "./walk_state.js";
import { STREAM_STEPS } from "./walk_stream.js";
import { formula } from "./walk_strings.js";
import { Texts } from "./walk_text.js";
import { Trace } from "./walk_trace.js";
import { FIRST_STEPS } from "./walk_vectors.js";
import { ZOOM } from "./walk_zoom.js";
import { lined, nameOf, splitWord, unlined } from "./words.js";

const DRAW = [...FIRST_STEPS, ...ATTENTION_STEPS, ...STREAM_STEPS];
const PACE = 6000; // milliseconds a step while it plays
const SPEEDS = [[0.5, "½"], [1, "1"], [2, "2"], [4, "4"]]; // times as fast
const SPOT = ".walk-cell, .walk-spot"; // what has a number
const REST = 200; // milliseconds after a slider was moved
const SLACK = 3; // pixels that a press may move and be no drag

class LiveWalk extends LiveFigure {
  static key = "walk";
  static isPlain = true;

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
    const { config, tokenizer } = this.library;
    this.model = this.library.build();
    this.words = (this.getAttribute("swap") ?? "text").split(" ");
    this.vocabulary = JSON.parse(this.getAttribute("vocabulary") ?? "{}");
    this.texts = new Texts(tokenizer, this.getAttribute("text") ?? "",
      this.words, config.max_len);
    const names = new Map();
    this.name = (id) => {
      if (!names.has(id)) names.set(id, nameOf(tokenizer, id));
      return names.get(id);
    };
    this.sizes = { block: this.model.blocks.length, head: config.n_heads,
      all: tokenizer.vocabSize };
    this.cache = new Map();
    const place = (name, otherwise) =>
      Math.min(this.sizes[name], this.number(name, otherwise)) - 1;
    this.start = { ...UNCHANGED, ...SEEN, text: this.texts.sentence, token: 0 };
    const [block, head] = this.pointing();
    Object.assign(this.start, { step: this.number("step", 1),
      token: this.number("token", Infinity) - 1, block: place("block", block),
      head: place("head", head) });
    this.state = this.fit(this.start);
    this.drawn = null;
    this.choose = Object.fromEntries(["token", "block", "head", "key", "trace"]
      .map((name) => [name, (value) => this.change({ [name]: value })]));
    this.choose.all = (changes) => this.change(changes);
    this.choose.quietly = (changes) => this.change(changes, true);
    return this.build();
  }

  /** The block and head, from 1, that look hardest from the last token at the
   *  one that the model answers; the first if it answers with a new one. */
  pointing() {
    const ids = this.texts.ids(this.start.text);
    const { blocks, logits } = this.states(this.start);
    const answer = this.sizes.answer = greedy(logits.at(-1));
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
      onkeydown: (event) => this.press(event), onfocus: () => this.pointStart(),
      onclick: (event) => this.click(event),
      onpointerdown: (event) => this.drag(event),
      onpointerover: (event) => this.point(event.target.closest(SPOT)),
    });
    // To ask for the width at each step would lay out the whole page again.
    this.resized = new ResizeObserver(() => requestAnimationFrame(() => {
      const { clientWidth } = this.picture_;
      if (!this.sheet || clientWidth === this.width) return;
      this.width = clientWidth;
      this.draw();
    }));
    this.resized.observe(this.picture_);
    this.crumbs = new Crumbs((goal) => this.change(goal),
      () => this.picture_.focus({ preventScroll: true }));
    this.controls = make("div", { className: "walk-controls" });
    this.typed = textBox(say("walk.text"), "", () => this.type());
    this.typed.input.dataset.name = "text";
    this.trace = new Trace((goal) => this.change(goal),
      () => this.picture_.focus({ preventScroll: true }));
    this.formula = make("p", { className: "walk-formula" });
    this.code = make("pre", { tabIndex: 0 });
    this.answer = new Answer(() => this.change({ ...UNCHANGED }));
    this.lines = make("div", { className: "walk-lines" }, this.formula,
      this.code, this.sentence);
    return [make("div", { className: "walk-body" }, this.map.element,
      make("div", { className: "walk-center" }, this.crumbs.element, this.heading,
        this.controls, this.readout, this.picture_, this.trace.element),
      make("div", { className: "walk-side" }, this.lines, this.answer.element,
        button(say("walk.save"), () => this.save()))),
    this.transport()];
  }

  /** Twelve marks, and what goes from one to the next. */
  transport() {
    this.scrubber = make("input", { type: "range", min: 1, max: STEPS, step: 1,
      "aria-label": say("walk.steps"),
      oninput: () => this.change({ step: this.scrubber.valueAsNumber }) });
    this.marks = Array.from({ length: STEPS }, (_, i) =>
      make("span", { onclick: () => this.change({ step: i + 1 }) }, `${i + 1}`));
    this.player = button(say("play"), () => this.play(!this.timer));
    this.speed = make("select", { "aria-label": say("walk.speed"),
      onchange: () => this.hurry() }, ...SPEEDS.map(([value, n]) =>
      make("option", { value, selected: value === 1 }, `${n}×`)));
    this.back = button(say("walk.back"), () => this.change({ step: this.state.step - 1 }));
    this.next = button(say("walk.next"), () => this.change({ step: this.state.step + 1 }));
    return make("div", { className: "walk-transport" }, this.answer.now,
      make("div", { className: "walk-scrubber" }, this.scrubber,
        make("div", { className: "walk-marks", "aria-hidden": true }, ...this.marks)),
      make("div", { className: "walk-buttons" }, this.back, this.player, this.next, this.speed,
        button(say("walk.reset"), () => this.change(this.start))));
  }

  /** The picture that is shown, as a file. */
  save() {
    const { step, zoom } = this.state;
    download(`walk-${zoom ?? step}.svg`, "image/svg+xml",
      standalone(this.sheet.svg, this.heading.textContent));
  }

  replace() {
    this.lines?.append(this.sentence); // it stands next to the picture
    super.replace();
  }

  run() {
    if (this.isMine()) {
      this.state = this.fit({ ...this.state, ...this.heard() });
      this.scrollIntoView();
    }
    this.show();
  }

  /** What the address says. */
  heard() {
    return fromAddress(location.hash, this.start, this.texts, this.sizes);
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
    if ("step" in changes) changes = { zoom: null, ...changes };
    const step = Math.max(1, Math.min(STEPS, changes.step ?? this.state.step));
    const isOther = (name) => name in changes
      && JSON.stringify(changes[name]) !== JSON.stringify(this.state[name]);
    const newText = ["text", "put"].some(isOther);
    const moved = newText || ["token", "block", "head"].some(isOther);
    if (moved) changes = { key: null, ...changes };
    if (newText || isOther("token"))
      changes = { weight: null, push: 0, ...changes };
    this.entered = step !== this.state.step || isOther("put");
    if (moved || this.entered || isOther("zoom")) {
      this.drawn = null;
      changes = { trace: null, ...changes };
    }
    this.state = this.fit({ ...this.state, ...changes, step });
    this.show(quiet);
    clearTimeout(this.writing);
    // Browsers take no more than a few addresses a second.
    if (quiet) this.writing = setTimeout(() => this.write(), REST);
    else this.write();
  }

  /** No token is chosen that the text has not. */
  fit(state) {
    const last = this.texts.ids(state.text).length - 1;
    return { ...state, token: Math.min(last, state.token) };
  }

  /** What the reader has typed, as the text; its last token is chosen. */
  type() {
    const text = unlined(this.typed.input.value).trimStart();
    this.change({ text, put: [], token: Infinity }, true);
    this.renew();
  }

  /** The drawn token joins the text, which ends with it. */
  goOn() {
    const { state, drawn, texts } = this;
    const all = texts.all(state.text), ids = texts.ids(state.text, state.put);
    const text = this.library.tokenizer.decode([
      ...all.slice(0, all.length - ids.length),
      ...ids.slice(0, state.token + 1), drawn]).trimStart();
    this.grown = true;
    this.change({ text, put: [], token: Infinity, step: 1 });
    this.grown = false;
    this.next.focus({ preventScroll: true });
  }

  /** Write the state into the address. */
  write() {
    try {
      const { key } = this.state;
      history.replaceState(history.state, "", toAddress({ ...this.state,
        key: key === this.strongest ? null : key }, this.start, this.texts));
    } catch { /* a frame without an address of its own */ }
  }

  /** The states of the model, changed or not; each is computed once. */
  states(state) {
    const { text, put, root, mask, muted, cut, straight, weight } = state;
    const key = JSON.stringify([text, put, root, mask, muted, cut, straight,
      weight, weight && state.token]);
    if (!this.cache.has(key)) {
      if (this.cache.size > 40) this.cache.clear();
      const intact = { ...UNCHANGED, text, put };
      const before = isChanged({ ...state, put: [] }) ? this.states(intact) : null;
      this.cache.set(key, watch(this.model, this.texts.ids(text, put), {
        root, mask, muted, cut, straight,
        weight: weight && { ...weight, query: state.token } }, before));
    }
    return this.cache.get(key);
  }

  show(quiet = false) {
    const { state, texts, name, library: { tokenizer } } = this;
    const ids = texts.ids(state.text, state.put);
    const states = this.states(state);
    const intact = this.states({ ...UNCHANGED, text: state.text });
    const names = Object.assign(ids.map(name), { name });
    const row = states.blocks[state.block].weights[state.head][state.token];
    this.strongest = row.indexOf(Math.max(...row));
    state.key ??= this.strongest;
    this.walk = { ids, names, states, intact, state, name, tokenizer,
      choose: this.choose, model: this.model, drawn: this.drawn,
      grown: this.grown, table: this.model.embedding.weight,
      split: state.step === 1 && splitWord(tokenizer, ids), cut: texts.cut(state.text),
      before: texts.ids(state.text), effects: this.effects() };
    if (!quiet) this.renew();
    this.draw();
    this.answer.show(intact.logits[state.token], states.logits[state.token],
      name, names[state.token], isChanged(state));
    const traced = this.trace.show(state.trace, this.model, states, names);
    this.describe(traced);
  }

  /** Other controls; the focus stays where it was. What is being typed into
   *  stays in its place. */
  renew() {
    const { activeElement } = document, { field, input } = this.typed;
    const name = this.controls.contains(activeElement)
      && activeElement.dataset.name;
    const isTyping = activeElement === input && this.state.step === 1;
    if (!isTyping) input.value = lined(this.texts.whole(this.state));
    for (const child of [...this.controls.children])
      if (!isTyping || child !== field) child.remove();
    this.controls.append(...controls(this).filter((each) =>
      !isTyping || each !== field));
    if (name) this.controls.querySelector(`[data-name="${name}"]`)?.focus();
  }

  /** The picture alone, as wide as there is room. */
  draw() {
    this.width ||= this.picture_.clientWidth;
    if (!this.width) return; // within something closed: drawn when it opens
    const { step, zoom } = this.state;
    this.sheet = new Sheet(this.width);
    this.blanks = (zoom ? ZOOM[zoom] : DRAW[step - 1])(this.sheet, this.walk);
    const svg = this.sheet.finish();
    svg.classList.toggle("walk-entered", Boolean(this.entered));
    this.picture_.replaceChildren(svg);
    this.readout.textContent = say(zoom && zoom !== LEVELS.at(-1)
      ? "walk.hint-zoom" : "walk.hint");
    this.picture_.setAttribute("aria-label",
      say(zoom ? "walk.picture-zoom" : "walk.picture"));
    this.cursor = this.sheet.start;
    if (document.activeElement === this.picture_) this.pointStart();
  }

  /** Mark where Enter goes in. */
  pointStart() {
    if (this.cursor) this.point(this.spotAt(this.cursor));
  }

  /** What the step is, and what a number that is traced is. */
  describe(traced) {
    const { step, block, head, truth, zoom } = this.state;
    const part = zoom ?? (step === STEPS && truth !== null ? "loss" : step);
    const title = say(`walk.${part}.title`, this.blanks);
    this.heading.textContent = zoom ? title : say("walk.step", { step, title });
    this.formula.replaceChildren(...formula(
      say(`walk.${part}.formula`, this.blanks)));
    this.code.textContent = CODE[part];
    const { variant = "", ...blanks } = this.blanks ?? {};
    this.tell(say(`walk.${part}.sentence${variant}`, { block: block + 1,
      head: head + 1, token: this.walk.names[this.state.token], ...blanks }));
    if (traced) this.speak(traced);
    this.scrubber.value = step;
    this.scrubber.setAttribute("aria-valuetext", say("walk.step", { step,
      title: say(`walk.${step}.title`) }));
    this.marks.forEach((mark, i) => mark.classList.toggle("walk-here", i + 1 === step));
    this.back.disabled = step === 1;
    this.next.disabled = step === STEPS;
    this.map.show(this.state);
    this.crumbs.show(this.state, this.walk.names);
  }

  /** How much the answer loses without each head of the block: computed one
   *  at a time, when nothing else has to be done. */
  effects() {
    const { state } = this;
    if (state.step !== 8 || state.zoom) return [];
    const key = JSON.stringify({ ...state, ...SEEN, head: 0, step: 0, muted: 0 });
    if (this.effectsKey !== key) {
      this.effectsKey = key;
      this.found = [];
      setTimeout(() => this.measure(key));
    }
    return this.found;
  }

  measure(key) {
    if (this.effectsKey !== key || this.state.step !== 8 || this.state.zoom) return;
    const { state } = this, h = this.found.length, t = state.token;
    const plain = { ...state, muted: [] };
    const before = softmax(this.states(plain).logits[t]);
    const best = before.indexOf(Math.max(...before));
    const without = { ...state, muted: [[state.block, h]] };
    const after = softmax(this.states(without).logits[t]);
    this.found.push(after[best] - before[best]);
    if (this.found.length < this.sizes.head) setTimeout(() => this.measure(key));
    else this.draw();
  }

  drawToken() {
    this.entered = true;
    const { temperature, topP } = this.state;
    const pick = sampler({ temperature, topP });
    const { states, state } = this.walk;
    this.drawn = pick(states.logits[state.token]);
    this.show();
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = null;
    this.player.textContent = say(on ? "pause" : "play");
    if (!on) return;
    const { step } = this.state;
    this.change({ step: step === STEPS ? 1 : step + 1 });
    this.keepTime();
  }

  /** The next step after each pause, which the speed makes longer or shorter. */
  keepTime() {
    clearInterval(this.timer);
    this.timer = setInterval(() => {
      if (this.state.step === STEPS) this.play(false);
      else this.change({ step: this.state.step + 1 });
    }, PACE / this.speed.value);
  }

  /** Another speed, also while it plays. */
  hurry() {
    if (this.timer) this.keepTime();
    this.speak(say("walk.pace", { n: PACE / this.speed.value / 1000 }));
  }

  /** Say a cell's number and mark it. */
  point(cell) {
    for (const on of this.picture_.querySelectorAll(".walk-on"))
      on.classList.remove("walk-on");
    if (!cell?.about) return;
    for (const on of [cell, ...(cell.also ?? [])]) on.classList.add("walk-on");
    cell.reveal?.();
    this.readout.textContent = cell.about();
  }

  click(event) {
    const box = this.sheet.svg.getBoundingClientRect();
    const spot = event.target.closest(SPOT);
    if (spot?.go) return spot.go();
    this.sheet.click(event.clientX - box.left, event.clientY - box.top);
    if (spot?.node) this.expand(spot.node);
  }

  /** Drag a bar to another length, by as much as the pointer moves. */
  drag(down) {
    const box = this.sheet.svg.getBoundingClientRect();
    const bar = this.sheet.dragAt(down.clientX - box.left, down.clientY - box.top);
    if (!bar || down.button) return;
    const stop = new AbortController(), { signal } = stop;
    const listen = (name, call) =>
      this.picture_.addEventListener(name, call, { signal });
    let moved = false;
    this.picture_.setPointerCapture(down.pointerId);
    listen("pointermove", (event) => {
      moved ||= Math.abs(event.clientX - down.clientX) > SLACK;
      if (moved) bar.set(Math.round(100 * Math.max(0, Math.min(1,
        (event.clientX - box.left - bar.x) / bar.full))) / 100);
    });
    for (const name of ["pointerup", "pointercancel"])
      listen(name, () => {
        stop.abort();
        if (moved) this.change({}); // the slider, too
      });
  }

  /** One level out; from the model back to the step. */
  goOut() {
    this.change({ zoom: LEVELS[LEVELS.indexOf(this.state.zoom) - 1] ?? null });
  }

  /** Show of what a number is the sum. */
  expand(trace) {
    this.change({ trace });
    this.trace.element.scrollIntoView({ block: "nearest" });
  }

  /** Arrow keys go over the cells, Enter goes into one, Escape goes out. */
  press(event) {
    const { rows } = this.sheet;
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1],
      ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!rows.length) return;
    if (event.key === "Enter" && this.cursor) {
      const { node, go } = this.spotAt(this.cursor);
      if (go) return go();
      if (node) this.trace.follow({ trace: node });
    }
    if (event.key === "Escape" && this.state.zoom) return this.goOut();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [down, right] = this.cursor ? moves[event.key] : [0, 0];
    const clamp = (value, n) => Math.max(0, Math.min(n - 1, value));
    const [row, column] = this.cursor ?? [0, 0];
    const r = clamp(row + down, rows.length);
    this.cursor = [r, clamp(column + right, rows[r].length)];
    this.point(this.spotAt(this.cursor));
    this.speak(this.readout.textContent);
  }

  spotAt([row, column]) {
    return this.sheet.rows[row][column];
  }

  /** Say something other than the sentence, once the reader pauses. */
  speak(text) {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => { this.spoken.textContent = text; }, 300);
  }
}

define("live-walk", LiveWalk);
