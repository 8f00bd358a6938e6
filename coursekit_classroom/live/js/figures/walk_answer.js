// The answer at the edge of the walk: the likeliest next tokens, before and
// after what the reader changed.
import { leading } from "../generation.js";
import { softmax } from "../tensor.js";
import { make } from "./parts.js";
import { percent, say } from "./strings.js";
import { points } from "./walk_strings.js";

const ROWS = 5;

export class Answer {
  constructor(undo) {
    this.title = make("p", { className: "walk-small" });
    this.list = make("ol", { className: "walk-bars" });
    this.change = make("p", { className: "walk-change" });
    this.undo = make("button", { type: "button", onclick: undo },
      say("walk.undo"));
    // The same in a line, for where the list is out of sight.
    this.now = make("p", { className: "walk-now", "aria-hidden": true });
    this.rows = new Map(); // kept, so that bars move
    this.element = make("div", { className: "walk-answer" }, this.title,
      this.list, this.change, this.undo);
  }

  /** Show two rows of logits: the trained model's and the changed one's. */
  show(before, after, name, token, changed) {
    const [old, now] = [softmax(before), softmax(after)];
    const most = changed ? leading(now, 2) : [], first = leading(old, ROWS);
    const ids = [...new Set([...first.slice(0, ROWS - most.length),
      ...most, ...first])].slice(0, ROWS);
    const largest = Math.max(...ids.flatMap((id) => [old[id], now[id]]));
    this.title.textContent = say("walk.answer", { token });
    this.list.replaceChildren(...ids.map((id) => {
      const row = this.row(id);
      row.firstChild.textContent = name(id);
      row.children[1].style.setProperty("--own", changed ? old[id] / largest : 0);
      row.children[1].style.setProperty("--made", now[id] / largest);
      row.lastChild.textContent = percent(now[id]);
      return row;
    }));
    const [best] = first;
    this.now.textContent = say(changed ? "walk.then-now" : "walk.now", {
      token: name(best), before: percent(old[best]), after: percent(now[best]) });
    this.change.textContent = changed ? say("walk.changed", {
      token: name(best), before: percent(old[best]), after: percent(now[best]),
      points: points(now[best] - old[best]) }) : say("walk.intact");
    this.undo.hidden = !changed;
  }

  row(id) {
    if (!this.rows.has(id)) this.rows.set(id, make("li", {}, make("b"),
      make("span", { className: "walk-track" }), make("span")));
    return this.rows.get(id);
  }
}
