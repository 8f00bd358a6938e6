// A run of minimal.py on a text, and the worker that does it next to the page.
import { CachedStepper } from "../cache.js";
import { buildModel, nest } from "../checkpoint.js";
import { sampler, stream } from "../generation.js";
import { CharTokenizer, utf8 } from "../tokenizer.js";
import { learningRate } from "./adamw.js";
import { Minimal, uniform } from "./minimal.js";
import { writeTensors, zip } from "./save.js";

/** What a browser trains in about a minute: minimal.py's model, smaller. */
export const RUN = { T: 32, D: 32, H: 2, blocks: 2, batch: 16, steps: 2000,
  peak: 1e-2 };
export const TEMPERATURE = 0.8; // of samples
const SAMPLED = 200, PROMPT = 16; // characters

/** A text, its characters as tokens, and a model that learns it. */
export class Trainer {
  constructor(text, { seed = 0, ...changes } = {}) {
    this.run = { ...RUN, ...changes };
    const signs = [...new Set(text)].sort(
      (a, b) => a.codePointAt(0) - b.codePointAt(0));
    this.vocabulary = { type: "characters", special_tokens: [],
      tokens: signs.map(utf8) };
    this.tokenizer = new CharTokenizer(this.vocabulary);
    const ids = Int32Array.from(this.tokenizer.encode(text));
    this.ids = ids.subarray(0, Math.floor(ids.length * 9 / 10)); // as minimal.py
    this.prompt = [...text.split("\n").find((line) => line.trim()) ?? text]
      .slice(0, PROMPT).join("");
    this.model = new Minimal({ ...this.run, V: signs.length }, uniform(seed));
    this.config = {
      vocab_size: signs.length, max_len: this.run.T, d_model: this.run.D,
      n_heads: this.run.H, n_layers: this.run.blocks, positions: "learned",
      norm: "layernorm", norm_eps: 1e-5, norm_first: true, final_norm: true,
      residual: true, activation: "gelu", bias: false, tie_embeddings: false,
      scale_embedding: false,
    };
  }

  get done() {
    return this.model.step >= this.run.steps;
  }

  /** One training step; its loss. */
  step() {
    const { steps, peak } = this.run;
    const rate = learningRate(this.model.step, steps, peak);
    return this.model.update(...this.model.batch(this.ids), rate);
  }

  /** The weights by name, as they are now. */
  tensors() {
    return Object.fromEntries(Object.entries(this.model.shapes).map(
      ([name, shape]) => [name, { shape, data: this.model.w[name] }]));
  }

  /** What the model makes of the prompt: always with the same draws, so that
   *  two samples differ by training alone. */
  sample(n = SAMPLED) {
    const model = buildModel(
      { model: "GPT", config: this.config }, nest(this.tensors()));
    const choose = sampler({ temperature: TEMPERATURE, random: uniform(1) });
    const prompt = this.tokenizer.encode(this.prompt);
    return this.tokenizer.decode(
      [...stream(new CachedStepper(model), prompt, n, choose)]);
  }

  /** The zip that coursekit.load reads. */
  save() {
    const json = (fields) => new TextEncoder().encode(
      `${JSON.stringify(fields, null, 1)}\n`);
    return zip({
      "config.json": json({ format: 1, model: "GPT", config: this.config }),
      "tokenizer.json": json(this.vocabulary),
      "model.safetensors": writeTensors(this.tensors()),
    });
  }
}

const TURN = 80; // ms of training between two messages to and from the page
const PAUSE = 2000; // ms between samples

/** Train as the page asks, in messages: {start: {text, …}}, {run: true or
 *  false}, {step: true}, {save: true}. */
export function serve(scope) {
  let trainer, running = false, seconds = 0, sampled = 0, losses = [];
  const tell = (what) => scope.postMessage(what);
  const update = () => {
    const start = performance.now();
    losses.push(trainer.step());
    seconds += (performance.now() - start) / 1000;
  };
  const report = (withSample) => {
    const { step } = trainer.model;
    tell({ step, seconds, losses, done: trainer.done,
      sample: withSample ? trainer.sample() : undefined });
    losses = [];
    if (withSample) sampled = performance.now();
  };
  const turn = () => {
    if (!running) return;
    const end = performance.now() + TURN;
    do update(); while (!trainer.done && performance.now() < end);
    running &&= !trainer.done;
    report(trainer.done || performance.now() - sampled >= PAUSE);
    setTimeout(turn); // messages of the page come first
  };
  const answers = {
    start({ text, ...how }) {
      trainer = new Trainer(text, how);
      const { V, steps } = { ...trainer.run, ...trainer.model.sizes };
      tell({ prompt: trainer.prompt, steps, V,
        parameters: trainer.model.all.w.length });
      report(true);
    },
    run(wanted) {
      if (wanted === running || trainer.done) return;
      running = wanted;
      if (running) setTimeout(turn);
      else report(true);
    },
    step() {
      if (running || trainer.done) return;
      update();
      report(true);
    },
    save() {
      tell({ saved: trainer.save() });
    },
  };
  scope.onmessage = ({ data }) => {
    for (const [what, how] of Object.entries(data)) answers[what](how);
  };
}

// The page's script has figures; the worker's has nothing else to do.
if (!globalThis.document) serve(globalThis);
