// <live-hero>: a text, where its last token looks, and what may come next.
// One word is swapped, or a token is drawn, and both are seen to move. Until
// the reader has done one of them, there is nothing else to press.
import { CachedStepper } from "../cache.js";
import { ranking, sampler } from "../generation.js";
import { softmax } from "../tensor.js";
import { define, LiveFigure } from "./figure.js";
import { NextBars } from "./hero_bars.js";
import { Stack } from "./hero_stack.js";
import { button, make, seeded, textBox } from "./parts.js";
import { say, tenths, visible } from "./strings.js";
import {
  lined, nameOf, pieces, plain, splitWord, tokenFor, unlined, wordPicker,
} from "./words.js";

const INSIDE = "#index-box"; // where "Go inside" leads if there is no walk
// Of each prompt of the model's: the question that it leaves open.
const CHIPS = { cause: "hero.cause", owner: "hero.owner", name: "hero.name" };
const BARS = 5;
const LONGEST = 600; // characters of what is typed that are read, the last
// Milliseconds: until a press is held, a token while it is, the ball's fall then.
const HOLD = 350, PACE = 200, QUICK = 120;

class LiveHero extends LiveFigure {
  static key = "hero";
  static isPlain = true;

  parts() {
    // Each {name, prompt, words: [one, another], head: [block, head]}.
    this.prompts = JSON.parse(this.getAttribute("prompts") ?? "[]");
    this.head = [this.number("layer", 0), this.number("head", 0)];
    this.kept = []; // of the last step: what each block's attention computed
    const model = this.watched(this.kept);
    this.stepper = new CachedStepper(model);
    this.random = this.hasAttribute("seed")
      ? seeded(this.number("seed", 0)) : Math.random;
    this.text = textBox(say("text"), this.getAttribute("text") ?? "",
      () => this.run(), { "aria-label": say("hero.text") });
    this.text.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) this.press(event);
    });
    this.stack = new Stack(model.blocks.length, () => this.swap());
    this.bars = new NextBars(BARS);
    this.inside = make("a", { className: "hero-inside" }, say("hero.inside"));
    this.root.classList.add("hero-waiting");
    return [make("div", { className: "hero-top" },
      make("p", { className: "hero-lead" }, make("b", {}, say("hero.lead")),
        say("hero.through", { n: model.blocks.length })),
      make("div", { className: "hero-own" }, this.text.input, this.chips())),
      make("div", { className: "hero-stage" },
        this.stack.element, this.bars.element),
      this.drawButton(), this.inside];
  }

  chips() {
    const chips = this.prompts.map(({ name, prompt, head }) =>
      button(name in CHIPS ? say(CHIPS[name]) : prompt, () => {
        this.text.input.value = prompt;
        this.head = head;
        this.run();
      }));
    return make("div", {
      className: "live-chips", role: "group", "aria-label": say("hero.prompts"),
      onkeydown: (event) => {
        const { key, target } = event;
        if (!["ArrowRight", "ArrowLeft"].includes(key)) return;
        event.preventDefault(); // a list would take another word
        if (key === "ArrowRight") target.nextElementSibling?.focus();
        else target.previousElementSibling?.focus();
      },
    }, ...chips, ...this.picker());
  }

  /** A list of words that the model has as tokens, to go on with. */
  picker() {
    const { tokenizer } = this.library;
    const words = JSON.parse(this.getAttribute("vocabulary") ?? "{}");
    const [space] = tokenizer.encode(" a"); // a token behind a space
    const { list } = wordPicker("", [["", say("hero.add")]], words,
      (word) => (tokenFor(tokenizer, word, space) === undefined
        ? undefined : word), "", (word) => {
        const { input } = this.text;
        input.value += `${/\S$/.test(input.value) ? " " : ""}${word}`;
        list.value = "";
        this.run();
      });
    list.setAttribute("aria-label", say("hero.add"));
    return list.options.length > 1 ? [list] : [];
  }

  /** A press draws one token; held, it draws five a second. */
  drawButton() {
    const press = button(make("span", {}, say("hero.draw")), () => {
      if (!this.held) this.draw();
      this.held = false;
    });
    press.className = "hero-draw";
    press.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.repeat) this.press(event);
    });
    press.addEventListener("pointerdown", () => {
      this.held = false;
      const again = () => {
        this.held = true;
        this.draw(QUICK);
        this.holding = setTimeout(again, PACE);
      };
      this.holding = setTimeout(again, HOLD);
    });
    for (const end of ["pointerup", "pointerleave", "pointercancel"])
      press.addEventListener(end, () => clearTimeout(this.holding));
    return press;
  }

  /** By key: one token, or five a second while the key is down. */
  press(event) {
    event.preventDefault();
    if (!event.repeat) return void this.draw();
    if (performance.now() < (this.next ?? 0)) return;
    this.next = performance.now() + PACE;
    this.draw(QUICK);
  }

  /** What is typed, read again from where it differs. */
  run() {
    const { tokenizer } = this.library;
    const text = unlined(this.text.input.value).slice(-LONGEST) || "\n";
    this.reread(tokenizer.encode(tokenizer.known(text)));
    const split = splitWord(tokenizer, this.ids);
    this.show(split
      ? say("hero.split", { word: split.word.trim(), n: split.n, all: this.all })
      : `${say("hero.typed", this.best)} ${this.hint()}`);
  }

  /** The reader has started: in place of the message a text to change, too. */
  begin(sentence) {
    if (!this.isWaiting) return sentence;
    this.root.classList.remove("hero-waiting");
    return `${sentence} ${say("hero.begun")}`;
  }

  get isWaiting() {
    return this.root.classList.contains("hero-waiting");
  }

  reread(ids) {
    this.flight = null; // what is still in the air belongs to another text
    this.bars.stop();
    this.kept.length = 0;
    this.stepper.reread(ids);
    this.shares = softmax(this.logits);
  }

  get logits() {
    return this.stepper.rows[0].logits;
  }

  get ids() {
    return this.stepper.rows[0].ids;
  }

  get all() {
    return this.shares.length.toLocaleString("en");
  }

  /** One word for another, where the text has it last. */
  swap() {
    const { at, id, name, other } = this.swappable();
    const before = this.shares, ids = [...this.ids];
    ids[at] = id;
    this.reread(ids);
    this.text.input.value = lined(this.library.tokenizer.decode(ids).trimStart());
    const rise = (token) => this.shares[token] - before[token];
    const [most] = this.ranked().sort((a, b) => rise(b) - rise(a));
    this.show(this.begin(say("hero.swapped", { word: other, other: name,
      token: this.name(most), before: tenths(before[most]),
      percent: tenths(this.shares[most]) })), before);
  }

  /** The last token that one of the prompts swaps: {at, id, name, other}. */
  swappable() {
    const { tokenizer } = this.library;
    for (let at = this.ids.length - 1; at >= 0; at--) {
      const text = tokenizer.decode([this.ids[at]]), name = text.trim();
      const pair = this.prompts.find(({ words }) => words.includes(name));
      if (!pair) continue;
      const other = pair.words.find((one) => one !== name);
      const [id, ...more] = tokenizer.encode(text.replace(name, other));
      if (more.length === 0) return { at, id, name, other };
    }
    return null;
  }

  hint() {
    const found = this.swappable();
    return found ? say("hero.try-swap", { word: found.name, other: found.other })
      : say("hero.try-draw");
  }

  /** Draw a token with its probability; it falls, flies, and is appended. */
  async draw(quick = 0) {
    this.land(); // one that is still in the air
    const id = sampler({ random: this.random })(this.logits);
    const flight = this.flight = { id };
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
      await this.bars.fall(
        { id, name: this.name(id), p: this.shares[id] }, quick || undefined);
      if (flight === this.flight && !quick)
        await this.bars.fly(id, this.stack.end);
    }
    if (flight === this.flight) this.land();
  }

  land() {
    const { flight } = this;
    this.flight = null;
    this.bars.stop();
    if (flight) this.take(flight.id);
  }

  take(id) {
    const drawn = this.name(id), had = tenths(this.shares[id]);
    this.kept.length = 0;
    this.stepper.step([id]);
    this.shares = softmax(this.logits);
    const { input } = this.text;
    input.value += lined(this.library.tokenizer.decode([id]));
    input.scrollLeft = input.scrollWidth;
    this.show(this.begin(say("hero.drawn", { ...this.best, drawn, had })));
  }

  ranked() {
    return ranking(this.shares).slice(0, BARS);
  }

  /** The most probable token, in words. */
  get best() {
    const [id] = this.ranked();
    return { token: this.name(id), percent: tenths(this.shares[id]),
      all: this.all };
  }

  /** Tokens, arcs and bars; after a swap, what the bars were before. */
  show(sentence, before) {
    const found = this.swappable(); // arcs: at first one head's alone
    const joined = new Set(pieces(this.library.tokenizer, this.ids));
    const tokens = this.ids.map((id, i) => ({
      name: this.name(id), joined: joined.has(i),
      other: i === found?.at ? found.other : undefined,
    }));
    const [layer, head] = this.head;
    const weights = this.kept[layer].weights[head].at(-1);
    this.stack.set(tokens, { layer, head, weights },
      this.isWaiting ? null : this.second(found));
    let ids = this.ranked();
    if (before) ids = inPlace(ids, this.bars.ids);
    this.bars.set(ids.map((id) =>
      ({ id, name: this.name(id), p: this.shares[id] })), before,
    this.shares.length - ids.length);
    this.inside.href = this.address;
    this.tell(sentence);
  }

  /** The head of an earlier block that looks hardest, from the last token, at
   *  the word that can be swapped: the cause, before who it leads to. */
  second(found) {
    const [last] = this.head;
    const heads = found ? this.kept.slice(0, last).flatMap(({ weights }, layer) =>
      weights.map((map, head) => ({ layer, head, weights: map.at(-1) }))) : [];
    const best = Math.max(...heads.map(({ weights }) => weights[found.at]));
    return heads.find(({ weights }) => weights[found.at] === best) ?? null;
  }

  /** The walk on the same text, by its word if it is the walk's sentence. */
  get address() {
    const walk = this.getAttribute("walk"), found = this.swappable();
    if (!walk) return INSIDE;
    const [{ prompt = "", words = [] } = {}] = this.prompts;
    const text = this.library.tokenizer.decode(this.ids);
    const same = found && words.includes(found.name)
      && text === prompt.replace(words[0], found.name);
    return `${walk}#walk=${same ? found.name : plain(text)}`;
  }

  /** A token without the space before it; a part of a letter as its bytes. */
  name(id) {
    const { tokenizer } = this.library, text = tokenizer.decode([id]);
    if (text.includes("\ufffd")) return nameOf(tokenizer, id);
    return text.trim() || visible(text);
  }
}

/** Tokens that were shown keep their rows; others take those that are free.
 *  The first of before stays in any case: its outline says what has changed. */
function inPlace(ids, old) {
  if (!ids.includes(old[0])) ids = [...ids.slice(0, -1), old[0]];
  const fresh = ids.filter((id) => !old.includes(id));
  return old.map((id) => (ids.includes(id) ? id : fresh.shift()));
}

define("live-hero", LiveHero);
