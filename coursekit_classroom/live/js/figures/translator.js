// <live-translator>: a sentence in, a sentence out, and where each of its
// tokens looked: cross-attention as an alignment.
import { Translator } from "../translate.js";
import { define, LiveFigure } from "./figure.js";
import {
  HeatMap, largest, Lines, make, mean, numbered, select, slider, TokenRow,
} from "./parts.js";
import { say, visible } from "./strings.js";

const MOST = 40; // tokens of a source
const PAUSE = 150; // milliseconds after a key before it translates
// Words that tell the two languages apart, none of which both have.
const COMMON = {
  de: "der die das den dem ein eine einen und ist sind auf mit nicht er sie",
  en: "the a an and is are on of with not he she it to at his her they",
};

/** The other language than a model's own, if a text is written in that. */
function foreign(text, own) {
  const words = text.toLowerCase().split(/[^\p{L}]+/u);
  const count = (language) =>
    words.filter((word) => COMMON[language].split(" ").includes(word)).length;
  const other = own === "de" ? "en" : "de";
  return count(other) > count(own) ? other : null;
}

class LiveTranslator extends LiveFigure {
  static key = "translator";

  parts() {
    const { config, tokenizer } = this.library;
    this.kept = [];
    this.translator = new Translator(this.library.build(), tokenizer);
    this.model = this.watched(this.kept);
    const later = () => {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.run(), PAUSE);
    };
    const draw = () => this.draw();
    this.text = this.textBox(say("translator.source"), later);
    this.beams = slider(say("beam.beams"),
      { min: 1, max: 4, value: this.number("beams", 4) }, later);
    const layers = config.n_decoder_layers;
    this.layer = select(say("layer"), numbered(layers),
      this.number("layer", layers - 1), draw);
    this.head = select(say("head"),
      [[-1, say("all-heads")], ...numbered(config.n_heads)],
      this.number("head", -1), draw);
    this.target = make("output", { className: "live-target" });
    this.tokens = new TokenRow(say("choose-query"), (row) => this.choose(row));
    this.source = make("div", { className: "live-tokens", "aria-hidden": true });
    this.lines = new Lines(this.source, this.tokens.element);
    this.map = new HeatMap((row) => this.choose(row));
    return [
      this.text.field,
      make("p", {}, `${say("translator.target")}: `, this.target),
      make("div", { className: "live-row" },
        this.beams.field, this.layer.field, this.head.field),
      this.lines.element,
      this.map.element,
    ];
  }

  run() {
    const text = this.text.input.value;
    const most = Math.min(MOST, this.model.config.max_len - 1); // and its end
    const read = this.read(text, most);
    const isEmpty = text.trim() === "";
    this.map.element.hidden = this.lines.element.hidden = isEmpty;
    this.target.textContent = "";
    if (isEmpty) return this.tell(say("empty"));
    const { bosId, eosId } = this.translator;
    const source = [...read.ids, eosId];
    let search;
    for (search of this.translator.search(source, this.beams.value));
    const [best] = search.finished;
    this.target.textContent = this.translator.decode(best.tokens);
    // Once more as a whole: row t is the query that chose token t.
    const target = [bosId, ...best.tokens].slice(0, this.model.config.max_len);
    this.kept.length = 0;
    this.model.decode(target, this.model.encode(source));
    const { tokenizer } = this.library;
    const end = `<${say("translator.end")}>`;
    const names = best.tokens.map((id) => tokenizer.decode([id]));
    this.rows = [...names, end].slice(0, target.length);
    this.columns = [...read.names, end];
    this.row = Math.min(this.row ?? 0, this.rows.length - 1);
    this.tokens.set(this.rows);
    this.source.replaceChildren(...this.columns.map((name) =>
      make("span", { className: "live-token" }, visible(name))));
    this.draw();
  }

  choose(row) {
    if (row === this.row) return;
    this.row = row;
    this.draw();
  }

  draw() {
    if (!this.rows) return;
    // Each block of the decoder attends to itself, then to the encoder.
    const { n_encoder_layers: encoder } = this.library.config;
    const { weights } = this.kept[encoder + 2 * this.layer.value + 1];
    const map = this.head.value < 0 ? mean(weights) : weights[this.head.value];
    const sentence = say("translator.sentence", {
      token: visible(this.rows[this.row]),
      row: this.row + 1,
      n: this.rows.length,
      shares: largest(map[this.row], this.columns),
    });
    this.tokens.mark(this.row);
    this.lines.set(this.row, map[this.row]);
    this.map.set(map, this.rows, this.columns, this.row, sentence);
    // A model of the reader's own may have another name, or other languages.
    const own = this.getAttribute("model")?.match(/translator-(..)-/)?.[1];
    const other = own in COMMON && foreign(this.text.input.value, own);
    const hint = other && say("translator.foreign",
      { own: say(`language.${own}`), other: say(`language.${other}`) });
    this.tell([hint, sentence].filter(Boolean).join(" "));
  }

  redraw() {
    this.draw();
  }
}

define("live-translator", LiveTranslator);
