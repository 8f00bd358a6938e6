// What all figures share: the still picture comes first, and stays if anything
// is missing; the model is fetched when the reader comes near.
import { attentionWeights, mixValues } from "../attention.js";
import { breath, loadModel } from "./library.js";
import { button, make, textBox } from "./parts.js";
import { say } from "./strings.js";
import { STYLE } from "./style.js";

const NEAR = "400px";
// The page comes first: before it is there and has been painted, no model.
const seen = new Promise((resolve) => {
  const start = () => {
    if (!PerformanceObserver.supportedEntryTypes.includes("paint")) return resolve();
    new PerformanceObserver(resolve).observe({ type: "paint", buffered: true });
  };
  if (document.readyState === "complete") start();
  else addEventListener("load", start);
});
const MOST_SIGNS = 400; // of a text; what is longer is cut

/** A still figure that comes alive. A kind of its own defines
 *
 *    static key    the beginning of its strings' names
 *    static isPlain  true if nothing need say that it can be tried
 *    parts()       the elements of which it is made
 *    run()         the model's work, after each change of the text
 *    redraw()      only for a canvas: the page's colors have changed
 */
export class LiveFigure extends HTMLElement {
  connectedCallback() {
    if (this.root) return this.watchTheme(); // it was only moved
    this.picture = this.querySelector(".picture, img");
    this.sentence = make("p", { className: "live-sentence", "aria-hidden": true });
    this.spoken = make("p", { className: "live-spoken", role: "status" });
    this.root = make("div", {
      className: "live", role: "group",
      "aria-label": say("figure", { title: say(`${this.constructor.key}.title`) }),
    });
    if (!this.constructor.isPlain) this.root.dataset.badge = say("badge");
    this.near = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) this.load();
    }, { rootMargin: NEAR });
    this.near.observe(this.picture ?? this);
    this.watchTheme();
  }

  disconnectedCallback() {
    this.theme?.disconnect();
  }

  /** The page may turn dark. */
  watchTheme() {
    this.theme ??= new MutationObserver(() => {
      if (this.dataset.state === "ready") this.redraw?.();
    });
    this.theme.observe(document.documentElement,
      { attributes: true, attributeFilter: ["data-theme"] });
  }

  async load() {
    this.near.disconnect();
    this.dataset.state = "loading";
    if (this.picture) await seen; // else there may be nothing to paint
    if (!document.getElementById("live-style"))
      document.head.append(make("style", { id: "live-style" }, STYLE));
    try {
      const address = this.getAttribute("model");
      if (address) this.library ??= await loadModel(address);
      this.root.append(...this.parts(), this.sentence, this.spoken);
      await breath();
      this.replace();
      this.run();
      this.dataset.state = "ready";
    } catch (error) {
      this.dataset.state = "failed";
      const text = say("failed", { reason: error.message });
      this.root.replaceChildren(make("p", { role: "status" }, text));
      this.replace();
      if (this.picture) this.picture.hidden = false;
    }
  }

  /** Take the picture's place. */
  replace() {
    if (!this.picture) return this.append(this.root);
    this.picture.before(this.root);
    this.picture.hidden = true;
  }

  /** Show a sentence; say it once the reader pauses. */
  tell(text) {
    this.sentence.textContent = text;
    clearTimeout(this.pause);
    this.pause = setTimeout(() => { this.spoken.textContent = text; }, 500);
  }

  /** A box for the text, and below it others to try; the first is what the
   *  figure begins with. */
  textBox(name, change, properties) {
    const text = this.getAttribute("text") ?? "";
    const box = textBox(name, text, change, properties);
    const others = this.getAttribute("examples")?.split(" | ") ?? [];
    if (others.length === 0) return box;
    const chips = [text, ...others].map((example) => button(example, () => {
      box.input.value = example; // and whoever listens to the box is told
      box.input.dispatchEvent(new Event("input", { bubbles: true }));
    }));
    return { input: box.input, field: make("div", { className: "live-own" },
      box.field, make("div", { className: "live-chips", role: "group",
        "aria-label": say("examples") }, ...chips)) };
  }

  /** A number among the attributes. */
  number(name, otherwise) {
    return Number(this.getAttribute(name) ?? otherwise);
  }

  /** The ids of a text, and what had to be left out of it. */
  read(text, most) {
    const { tokenizer } = this.library;
    const known = tokenizer.known(text.slice(0, MOST_SIGNS));
    const ids = tokenizer.encode(known);
    const names = ids.slice(0, most).map((id) => tokenizer.decode([id]));
    return { ids: ids.slice(0, most), names, cut: ids.length > most
      || text.length > MOST_SIGNS };
  }

  /** A model that keeps what each attention computes, in order. */
  watched(kept, isCausal = () => true) {
    return this.library.build((q, k, v, causal, bias) => {
      const weights = attentionWeights(q, k, causal && isCausal(), bias);
      kept.push({ q, k, weights });
      return mixValues(weights, v);
    });
  }
}

/** Give a figure its element, unless the page has it already. */
export function define(name, figure) {
  if (!customElements.get(name)) customElements.define(name, figure);
}
