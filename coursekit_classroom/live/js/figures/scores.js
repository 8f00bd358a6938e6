// <live-scores>: one row of attention from q · k to the weights, in numbers, and
// for one key the products that its q · k is the sum of.
import { ranking } from "../generation.js";
import { dot, softmax } from "../tensor.js";
import { define, LiveFigure } from "./figure.js";
import {
  button, checkbox, largest, make, numbered, select, TokenRow,
} from "./parts.js";
import { percent, say, signed, visible } from "./strings.js";

const MOST = 16; // tokens: a row of the table each

class LiveScores extends LiveFigure {
  static key = "scores";

  parts() {
    const { config } = this.library;
    const size = config.d_head ?? config.d_model / config.n_heads;
    const show = () => this.show();
    this.root_ = Math.sqrt(size);
    this.text = this.textBox(say("text"), () => this.run());
    this.layer = select(say("layer"), numbered(config.n_layers),
      this.number("layer", 0), show);
    this.head = select(say("head"), numbered(config.n_heads),
      this.number("head", 0), show);
    this.divide = checkbox(
      say("scores.root", { root: this.root_.toFixed(2) }), true, show);
    this.mask = checkbox(say("scores.mask"), true, show);
    this.tokens = new TokenRow(say("choose-query"), (row) => {
      this.row = row;
      this.show();
    });
    this.sum = make("div", { className: "scores-sum", role: "group" });
    this.rows = make("tbody");
    const heads = ["key", "product", "score", "weight"].map((name) =>
      make("th", { scope: "col" }, say(`scores.${name}`)));
    this.kept = [];
    this.model = this.watched(this.kept);
    return [
      this.text.field,
      make("div", { className: "live-row" }, this.layer.field,
        this.head.field, this.divide.field, this.mask.field),
      this.tokens.element,
      make("table", { className: "live-table" },
        make("thead", {}, make("tr", {}, ...heads)), this.rows),
      this.sum,
    ];
  }

  run() {
    const { ids, names } = this.read(this.text.input.value, MOST);
    this.names = names;
    this.key = null; // that of the largest weight
    this.tokens.set(names);
    this.kept.length = 0;
    if (ids.length) {
      this.row = Math.min(this.row ?? Infinity, ids.length - 1);
      this.model.hidden(ids);
    }
    this.show();
  }

  show() {
    if (!this.kept.length) {
      this.rows.replaceChildren();
      this.sum.replaceChildren();
      return this.tell(say("empty"));
    }
    const { q, k } = this.kept[this.layer.value];
    const h = this.head.value;
    const query = q[h][this.row];
    const keys = k[Math.floor((h * k.length) / q.length)];
    const products = keys.map((key) => dot(query, key));
    const divisor = this.divide.box.checked ? this.root_ : 1;
    const scores = products.map((product, s) =>
      (this.mask.box.checked && s > this.row ? -Infinity : product / divisor));
    const weights = softmax(scores);
    const chosen = this.key ?? ranking(weights)[0];
    const focused = this.rows.contains(document.activeElement);
    this.rows.replaceChildren(...this.names.map((name, s) => {
      const bar = make("span", { className: "live-track" });
      bar.style.setProperty("--made", weights[s]);
      return make("tr", {},
        make("th", { scope: "row" }, this.keyButton(s, s === chosen)),
        make("td", {}, signed(products[s])),
        make("td", {}, scores[s] === -Infinity
          ? say("scores.hidden") : signed(scores[s])),
        make("td", {}, bar, weights[s].toFixed(2)));
    }));
    if (focused) this.rows.querySelectorAll("button")[chosen].focus();
    this.add(query, keys[chosen], chosen);
    this.tokens.mark(this.row, weights);
    this.tell(say("scores.sentence", {
      token: visible(this.names[this.row]),
      shares: largest(weights, this.names),
      largest: percent(Math.max(...weights)),
    }));
  }

  keyButton(s, isChosen) {
    const press = button(visible(this.names[s]), () => {
      this.key = s;
      this.show();
    });
    press.setAttribute("aria-pressed", isChosen);
    return press;
  }

  /** q above k, entry by entry, and below each pair its product. */
  add(query, key, s) {
    const product = Array.from(query, (q, i) => q * key[i]);
    const rows = [["query", query], ["key", key], ["weight", product]];
    const most = rows.map(([, all]) => Math.max(...Array.from(all, Math.abs)));
    const cells = product.map((_, i) => make("li", {}, ...rows.map(([role, all], r) => {
      const cell = make("span", { className: `scores-${role}` }, signed(all[i]));
      cell.style.setProperty("--share", Math.abs(all[i]) / most[r]);
      return cell;
    })));
    const heads = make("li", { "aria-hidden": true }, ...["q", "k", "q × k"].map(
      (name) => make("span", {}, name)));
    const names = { query: visible(this.names[this.row]), key: visible(this.names[s]) };
    this.sum.replaceChildren(
      make("p", {}, say("scores.sum", names)),
      make("ol", { role: "list", "aria-label": say("scores.strips") }, heads, ...cells),
      make("p", {}, say("scores.total",
        { n: product.length, product: signed(dot(query, key)) })));
  }
}

define("live-scores", LiveScores);
