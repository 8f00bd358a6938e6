// The way into the model: model, block, head, the dot product of two tokens.
// Each is a level of the zoom, and the way out of those below it.
import { button, make } from "./parts.js";
import { say } from "./strings.js";
import { LEVELS } from "./walk_state.js";

export class Crumbs {
  /** `go` changes the walk's state, `leave` is called when the zoom ends. */
  constructor(go, leave) {
    this.buttons = LEVELS.map((zoom) => button("", () => go({ zoom })));
    this.close = button("", () => {
      go({ zoom: null });
      leave();
    });
    this.element = make("nav", { className: "walk-crumbs",
      "aria-label": say("walk.zoom") },
    make("span", { "aria-hidden": true, className: "walk-long" }, say("walk.zoom")),
    make("ol", {}, ...this.buttons.map((each) => make("li", {}, each))),
    this.close);
  }

  show({ zoom, block, head, step, token, key }, names) {
    this.buttons.forEach((each, i) => {
      const level = LEVELS[i];
      each.textContent = say(`walk.crumb.${level}`, { b: block + 1, h: head + 1 });
      each.setAttribute("aria-current", level === zoom ? "location" : "false");
    });
    const pair = say("walk.crumb.pair", { token: names[token], key: names[key] });
    this.buttons.at(-1).append(make("span", { className: "walk-long" }, pair));
    this.close.hidden = !zoom;
    this.close.textContent = say("walk.zoom-leave", { step });
  }
}
