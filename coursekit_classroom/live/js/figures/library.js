// Models that figures share: each is loaded once, when the first one needs it.
//
// A page opened as a file may not fetch data, but it may load a script. So a
// model is a script that calls coursekitLive.receive.
import { buildModel, readWeights } from "../checkpoint.js";
import { tokenizerFromDict } from "../tokenizer.js";

const received = new Map(); // by name, for the moment between call and load
const libraries = new Map(); // by address: promises

/** Called by the script of a model. */
export function receive(name, fields) {
  received.set(name, fields);
}

/** A promise of the Library at an address. */
export function loadModel(address) {
  if (!libraries.has(address)) {
    const library = loadScript(address).then(Library.of);
    library.catch(() => libraries.delete(address)); // may be tried again
    libraries.set(address, library);
  }
  return libraries.get(address);
}

/** A promise of what the script at an address hands over. */
export function loadScript(address) {
  const name = address.split("/").at(-1).replace(/\.js$/, "");
  const script = document.createElement("script");
  const take = () => {
    const fields = received.get(name);
    received.delete(name);
    return fields;
  };
  if (received.has(name)) return Promise.resolve(take()); // it came before
  return new Promise((resolve, reject) => {
    script.addEventListener("load", () => {
      script.remove();
      const fields = take();
      if (fields) resolve(fields);
      else reject(new Error(`${name} is damaged`));
    });
    script.addEventListener("error", () => {
      script.remove();
      reject(new Error(`${name} could not be loaded`));
    });
    script.src = address;
    document.head.append(script);
  });
}

/** Let the page do what waits, such as a press, between two pieces of work. */
export function breath() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** A tokenizer and a model's weights, of which figures build models. */
export class Library {
  constructor({ tokenizer, ...fields }, buffer = null) {
    this.fields = fields;
    this.config = fields.config;
    if (tokenizer) this.tokenizer = tokenizerFromDict(tokenizer);
    if (buffer) this.weights = readWeights(buffer);
  }

  /** That of a script, in pieces. */
  static async of({ weights, proof, ...fields }) {
    await breath();
    const buffer = weights && fromBase64(weights);
    await breath();
    const library = new Library(fields, buffer);
    await breath();
    if (proof) library.check(proof);
    await breath();
    return library;
  }

  /** The model, with an attention function of the figure's own. */
  build(attendTo) {
    return this.weights && buildModel(this.fields, this.weights, attendTo);
  }

  /** The numbers that PyTorch found are found here, too. */
  check({ ids, outputs }) {
    const model = this.build();
    const last = this.fields.model === "Transformer"
      ? model.forward(ids, ids).at(-1)
      : model.forward(ids).at(-1);
    if (!outputs.every((value, i) => Math.abs(value - last[i]) < 1e-3))
      throw new Error("the model does not compute what it should");
  }
}

function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}
