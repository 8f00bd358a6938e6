// <live-attention>: who looks at whom in a text of the reader's own.
import { define, LiveFigure } from "./figure.js";
import {
  checkbox, HeatMap, largest, make, mean, numbered, select, TokenRow,
} from "./parts.js";
import { say, visible } from "./strings.js";

const MOST = 64; // tokens; a larger map would be a blur

class LiveAttention extends LiveFigure {
  static key = "attention";

  parts() {
    const { config, fields } = this.library;
    const layers = config.n_layers ?? config.n_encoder_layers;
    const draw = () => this.draw();
    this.text = this.textBox(say("text"), () => this.run());
    this.layer = select(
      say("layer"), numbered(layers), this.number("layer", 0), draw);
    this.head = select(
      say("head"), [[-1, say("all-heads")], ...numbered(config.n_heads)],
      this.number("head", 0), draw);
    this.causal = checkbox(say("attention.causal"), true, () => this.run());
    this.tokens = new TokenRow(say("choose-query"), (row) => this.choose(row));
    this.map = new HeatMap((row) => this.choose(row));
    this.kept = [];
    this.model = this.watched(this.kept, () => this.causal.box.checked);
    const controls = [this.layer.field, this.head.field];
    // An encoder has no mask to take off.
    if (fields.model === "GPT") controls.push(this.causal.field);
    return [
      this.text.field,
      make("div", { className: "live-row" }, ...controls),
      this.tokens.element,
      this.map.element,
    ];
  }

  run() {
    const read = this.read(
      this.text.input.value, Math.min(MOST, this.library.config.max_len));
    this.kept.length = 0;
    this.names = read.names;
    this.cut = read.cut;
    this.tokens.set(this.names);
    this.map.element.hidden = read.ids.length === 0;
    if (read.ids.length === 0) return this.tell(say("empty"));
    this.row = Math.min(this.row ?? Infinity, read.ids.length - 1);
    const model = this.model.encoder ?? this.model;
    if (model.hidden) model.hidden(read.ids); // a GPT, without its logits
    else model.forward(read.ids);
    this.draw();
  }

  choose(row) {
    if (row === this.row) return;
    this.row = row;
    this.draw();
  }

  draw() {
    if (!this.kept.length) return;
    const { weights } = this.kept[this.layer.value];
    const one = this.head.value;
    const map = one < 0 ? mean(weights) : weights[one];
    const shares = map[this.row];
    const sentence = say(one < 0 ? "attention.mean" : "attention.sentence", {
      layer: this.layer.value + 1,
      head: one + 1,
      token: visible(this.names[this.row]),
      row: this.row + 1,
      n: this.names.length,
      shares: largest(shares, this.names),
    }) + (this.cut ? ` ${say("shortened", { n: this.names.length })}` : "");
    this.tokens.mark(this.row, shares);
    this.map.set(map, this.names, this.names, this.row, sentence);
    this.tell(sentence);
  }

  redraw() {
    this.draw();
  }
}

define("live-attention", LiveAttention);
