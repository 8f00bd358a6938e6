// Reading what coursekit/checkpoint.py wrote: numbers and text, no code.
import { GPT } from "./decoder.js";
import { Encoder } from "./encoder.js";
import { Transformer } from "./seq2seq.js";

const MODELS = { GPT, Encoder, Transformer };
const TYPES = { F32: Float32Array, F64: Float64Array, I8: Int8Array };
const SCALE = ".scale"; // behind a matrix's name: the name of its rows' steps

/** Read a safetensors file: {name: {shape, data}}.
 *
 *  It begins with the length of its JSON in eight bytes, then the JSON: each
 *  tensor's type, shape and place in the rest. */
export function readTensors(buffer) {
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  const head = new TextDecoder().decode(new Uint8Array(buffer, 8, size));
  const { __metadata__, ...entries } = JSON.parse(head);
  const tensors = {};
  for (const [name, entry] of Object.entries(entries)) {
    const { dtype, shape, data_offsets: [start, stop] } = entry;
    if (!(dtype in TYPES)) throw new TypeError(`${name} is of type ${dtype}`);
    // A slice of its own, as nothing promises that `start` is a multiple of 4.
    const bytes = buffer.slice(8 + size + start, 8 + size + stop);
    const data = new TYPES[dtype](bytes);
    if (data.length !== shape.reduce((a, b) => a * b, 1))
      throw new RangeError(`${name} is cut short`);
    tensors[name] = { shape, data };
  }
  return tensors;
}

/** The files in a zip that is not compressed: {name: Blob}. */
export function unzip(buffer) {
  const view = new DataView(buffer), files = {};
  const short = (at) => view.getUint16(at, true);
  const long = (at) => view.getUint32(at, true);
  for (let at = 0; long(at) === 0x04034b50;) { // the head of a file
    if (short(at + 8) !== 0) throw new TypeError(
      "a zip must be stored without compression: save it again, or choose its files");
    const start = at + 30 + short(at + 26) + short(at + 28);
    const name = new Uint8Array(buffer, at + 30, short(at + 26));
    at = start + long(at + 18);
    files[new TextDecoder().decode(name)] = new Blob([buffer.slice(start, at)]);
  }
  return files;
}

/** Undo to_int8: whole numbers, times the step of their row. */
export function fromInt8(tensors) {
  const restored = {};
  for (const [name, { shape, data }] of Object.entries(tensors)) {
    if (name.endsWith(SCALE)) continue;
    const steps = tensors[name + SCALE]?.data;
    if (!steps) {
      restored[name] = { shape, data };
      continue;
    }
    const columns = data.length / shape[0];
    const numbers = new Float32Array(data.length);
    for (let i = 0; i < data.length; i++)
      numbers[i] = data[i] * steps[Math.floor(i / columns)];
    restored[name] = { shape, data: numbers };
  }
  return restored;
}

/** A matrix as the list of its rows; a vector as it is. */
function rows({ shape, data }) {
  if (shape.length < 2) return data;
  const [n, columns] = shape;
  return Array.from({ length: n }, (_, i) =>
    data.subarray(i * columns, (i + 1) * columns));
}

/** {"blocks.0.attention.w_q.weight": …} becomes a tree of the same names. */
export function nest(tensors) {
  const tree = {};
  for (const [name, tensor] of Object.entries(tensors)) {
    const path = name.split(".");
    const last = path.pop();
    let branch = tree;
    for (const part of path) branch = branch[part] ??= {};
    branch[last] = rows(tensor);
  }
  return tree;
}

/** A model's weights: linear(x, weights.blocks[0].attention.w_q). */
export function readWeights(buffer) {
  return nest(fromInt8(readTensors(buffer)));
}

/** Make the model that a config.json describes. */
export function buildModel(fields, weights, attendTo) {
  if (!(fields.model in MODELS))
    throw new TypeError(`no model of the class ${fields.model} runs here`);
  return new MODELS[fields.model](fields.config, weights, attendTo);
}
