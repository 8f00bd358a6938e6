// A number of the walk as the sum that it is, its largest terms first, each a
// way to the number that it comes from.
import { expand } from "../trace.js";
import { button, make } from "./parts.js";
import { say, signed } from "./strings.js";

const SHOWN = 6; // terms
const SOURCES = { E: "embedding", P: "position", att: "attention",
  net: "network" };

/** Where a press on a term leads: to the step that shows it, or its own sum. */
function goal({ from }) {
  const [kind, token, block, head, key] = from;
  if (kind === "score") return { step: 7, token, block, head, key };
  if (from.length === 2) return { step: kind === "E" ? 2 : 3, token };
  return { trace: from };
}

/** What a number is called. */
function title([kind, t, ...at], names) {
  const i = at.at(-1) + 1, token = names[t];
  if (kind.endsWith("logit"))
    return say(`walk.of.${kind}`, { token: names.name(at[0]), b: at[1] + 1 });
  return say(`walk.of.${kind}`, { token, i, b: at[0] + 1,
    key: names[at.at(-1)] });
}

/** What a term is called. */
function label({ at }, names) {
  const source = SOURCES[at.source];
  if (source) return say(`walk.from.${source}`, { b: at.b + 1 });
  if (at.s !== undefined)
    return say("walk.from.token", { h: at.h + 1, token: names[at.s] });
  if (at.bias) return say("walk.from.bias");
  if (at.mean) return say("walk.from.mean");
  return say("walk.from.dimension", { i: at.i + 1 });
}

export class Trace {
  /** `go` changes the walk's state, `leave` is called when nothing is left. */
  constructor(go, leave) {
    Object.assign(this, { go, leave });
    this.trail = [];
    this.heading = make("p", { className: "walk-traced", tabIndex: -1 });
    this.list = make("ol", { className: "walk-terms" });
    this.rest = make("p", { className: "walk-rest" });
    this.back = button(say("walk.trace-back"), () => {
      this.trail.pop();
      this.follow({ trace: this.trail.pop() ?? null });
    });
    this.element = make("section", { className: "walk-trace", hidden: true,
      "aria-label": say("walk.trace") }, this.heading, this.list, this.rest,
    make("div", { className: "walk-buttons" }, this.back,
      button(say("walk.trace-close"), () => this.follow({ trace: null }))));
  }

  /** Go on, with the focus where the next sum begins. */
  follow(goal) {
    this.go(goal);
    if (this.element.hidden) this.leave();
    else this.heading.focus({ preventScroll: true });
  }

  /** Show the sum that a node is, or nothing; returns what it says. */
  show(node, model, states, names) {
    const found = node && expand(model, states, node);
    this.element.hidden = !found;
    if (!found) {
      this.trail = [];
      return "";
    }
    if (this.trail.at(-1)?.join() !== node.join()) this.trail.push(node);
    this.back.disabled = this.trail.length < 2;
    const { value, inner = value, terms } = found;
    const sorted = [...terms].sort((a, b) =>
      Math.abs(b.value) - Math.abs(a.value));
    const largest = Math.abs(sorted[0]?.value) || 1;
    const kind = terms.length === 0 ? "learned" : inner !== value ? "gelu" : "sum";
    this.heading.textContent = say(`walk.trace-${kind}`, {
      name: title(node, names), value: signed(value), inner: signed(inner),
      n: terms.length });
    const shown = sorted.slice(0, SHOWN);
    this.list.replaceChildren(...shown.map((term) =>
      this.row(term, largest, names)));
    const rest = sorted.slice(SHOWN);
    this.rest.textContent = rest.length ? say("walk.trace-rest", { n: rest.length,
      sum: signed(rest.reduce((sum, term) => sum + term.value, 0)) }) : "";
    return [this.heading.textContent, ...shown.map((term) =>
      `${label(term, names)}: ${signed(term.value)}`)].join(" ");
  }

  row(term, largest, names) {
    const { factors, value, from } = term;
    const bar = make("span", { className: "walk-term" });
    bar.classList.toggle("walk-less", value < 0);
    bar.style.setProperty("--made", Math.abs(value) / largest);
    const parts = [make("b", {}, label(term, names)),
      make("span", { className: "walk-factors" },
        factors.length > 1 ? factors.map(signed).join(" · ") : ""),
      bar, make("span", {}, signed(value))];
    if (!from) return make("li", {}, make("span", {}, ...parts));
    const press = button("", () => this.follow(goal(term)));
    press.append(...parts);
    return make("li", {}, press);
  }
}
