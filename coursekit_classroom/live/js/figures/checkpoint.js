// <live-checkpoint>: the reader's own weights, dropped on the page. They stay
// there: nothing is sent anywhere.
import { fromInt8, readTensors, unzip } from "../checkpoint.js";
import { define, LiveFigure } from "./figure.js";
import { Library } from "./library.js";
import { make, select } from "./parts.js";
import { say } from "./strings.js";

const MOST = 96; // cells of a picture in a row: of more, each is a mean

class LiveCheckpoint extends LiveFigure {
  static key = "checkpoint";

  parts() {
    this.input = make("input", {
      type: "file", multiple: true, accept: ".zip,.safetensors,.json",
      onchange: () => this.open(this.input.files),
    });
    this.zone = make("label", {
      className: "live-drop",
      ondragover: (event) => event.preventDefault(),
      ondrop: (event) => {
        event.preventDefault();
        this.open(event.dataTransfer.files);
      },
    }, say("checkpoint.drop"), this.input);
    this.inside = make("div");
    return [this.zone, this.inside];
  }

  run() {
    this.tell("");
  }

  async open(files) {
    this.inside.replaceChildren();
    const [first] = files;
    if (!first) return; // the choice was cancelled
    let named = Object.fromEntries([...files].map((file) => [file.name, file]));
    try {
      if (first.name.endsWith(".zip")) named = unzip(await first.arrayBuffer());
      const weights = Object.keys(named).find((name) => name.endsWith(".safetensors"));
      const buffer = await (named[weights] ?? first).arrayBuffer();
      this.show(fromInt8(readTensors(buffer)));
      const config = named["config.json"], tokens = named["tokenizer.json"];
      if (config && tokens)
        this.use(new Library({
          ...JSON.parse(await config.text()),
          tokenizer: JSON.parse(await tokens.text()),
        }, buffer));
    } catch (error) {
      this.tell(say("checkpoint.bad",
        { file: first.name, reason: error.message }));
    }
  }

  /** The figures that this model can run. */
  use(library) {
    const kinds = this.getAttribute("shows")?.split(" ")
      ?? ["attention", library.fields.model === "Transformer" ? "translator" : "next-token"];
    for (const kind of kinds) {
      const figure = make(`live-${kind}`, {
        className: "live-figure", text: say("checkpoint.text"),
      });
      figure.library = library;
      this.inside.append(figure);
    }
  }

  show(tensors) {
    const entries = Object.entries(tensors);
    const list = select(say("checkpoint.tensor"),
      entries.map(([name], i) => [i, name]), 0, () => this.look(list, entries));
    this.canvas = make("canvas", { role: "img", className: "live-weights" });
    this.about = make("p");
    this.inside.replaceChildren(list.field, this.about, this.canvas);
    this.total = say("checkpoint.total", {
      tensors: entries.length,
      n: entries.reduce((n, [, { data }]) => n + data.length, 0)
        .toLocaleString("en"),
    });
    this.look(list, entries);
  }

  look(list, entries) {
    const [name, { shape, data }] = entries[list.value];
    const size = shape.join(" × ") || "1";
    let largest = 0;
    for (const value of data) largest = Math.max(largest, Math.abs(value));
    this.about.textContent = say("checkpoint.shape",
      { shape: size, n: data.length, largest: largest.toPrecision(3) });
    this.canvas.setAttribute("aria-label",
      say("checkpoint.picture", { name, shape: size }));
    paint(this.canvas, shape, data);
    this.tell(`${this.total} ${name}: ${this.about.textContent}`);
  }
}

/** A matrix as a picture: red is positive, blue negative. */
function paint(canvas, shape, data) {
  const columns = shape.at(-1) ?? 1, rows = data.length / columns;
  const width = Math.min(columns, MOST), height = Math.min(rows, MOST);
  const sums = new Float64Array(width * height), counts = sums.slice();
  data.forEach((value, i) => {
    const x = Math.floor(((i % columns) * width) / columns);
    const y = Math.floor((Math.floor(i / columns) * height) / rows);
    sums[y * width + x] += value;
    counts[y * width + x]++;
  });
  const cells = sums.map((sum, i) => sum / counts[i]);
  let largest = 1e-12;
  for (const cell of cells) largest = Math.max(largest, Math.abs(cell));
  Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(width, height);
  cells.forEach((cell, i) => {
    const color = cell > 0 ? [178, 24, 43] : [0, 114, 178];
    pixels.data.set([...color, (255 * Math.abs(cell)) / largest], 4 * i);
  });
  pen.putImageData(pixels, 0, 0);
}

define("live-checkpoint", LiveCheckpoint);
