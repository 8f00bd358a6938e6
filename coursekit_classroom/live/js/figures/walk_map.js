// The whole model as one thin stream: where the walk is now, and a way to go
// to another part of it.
import { make } from "./parts.js";
import { say } from "./strings.js";
import { stepOf } from "./walk_state.js";

const INSIDE = [4, 10]; // the steps that are within a block

export class ModelMap {
  constructor(nBlocks, go) {
    this.places = [
      ["tokens", { step: 1 }], ["embedding", { step: 2 }],
      ["position", { step: 3 }],
      ...Array.from({ length: nBlocks }, (_, block) => ["block", { block }]),
      ["logits", { step: 12 }], ["next", { step: 12 }],
    ].map(([name, goal]) => this.place(name, goal, go));
    this.element = make("nav", { className: "walk-map",
      "aria-label": say("walk.map-label") },
    make("ol", {}, ...this.places.map(({ button }) => make("li", {}, button))));
  }

  place(name, goal, go) {
    const blanks = { b: (goal.block ?? 0) + 1 };
    const long = say(`walk.place.${name}`, blanks);
    const brief = say(`walk.short.${name}`, blanks);
    const button = make("button", { type: "button", className: "walk-at",
      "aria-label": long.includes(brief) ? long : `${long} ${brief}`,
      onclick: () => go(this.aim(goal)) },
    make("span", { className: "walk-long" }, long),
    make("span", { className: "walk-brief" }, brief));
    if (name === "block") button.append(make("i"), make("i"));
    return { name, goal, button };
  }

  /** A block is entered at its beginning, unless the walk is in a block; where
   *  the reader has zoomed in, it is seen at the same level. */
  aim(goal) {
    if (goal.step) return goal;
    const { step, zoom } = this.state;
    if (zoom) return { ...goal, zoom: zoom === "model" ? "block" : zoom };
    return { ...goal, step: step >= INSIDE[0] && step <= 11 ? step : INSIDE[0] };
  }

  show(state) {
    this.state = state;
    const { block } = state, step = stepOf(state);
    for (const { name, goal, button } of this.places) {
      const here = name === "block"
        ? step >= INSIDE[0] && (goal.block === block ? step <= 11 : step === 11)
        : goal.step === step;
      button.setAttribute("aria-current", here ? "step" : "false");
      if (name !== "block") continue;
      const [attention, network] = button.querySelectorAll("i");
      attention.classList.toggle("walk-lit", here && step < INSIDE[1]);
      network.classList.toggle("walk-lit", here && step === INSIDE[1]);
    }
  }
}
