// The state of a walk, which its page's address holds:
// #walk=hungry&step=5&token=12&block=2&head=3&mute=1.3,2.4
//
// Behind `walk` stands one of the page's words, or a text of the reader's. An
// address counts from 1, as a reader does, and tokens have their ids; a state
// counts from 0, but for the step. put=3.412 puts token 412 in the third
// position, truth=412 gives the true token, beside=3 a second block, zoom=head
// a level of the zoom, key=2 another key than the one that gets most, and
// trace=x.11.3.5 the number that is traced, a node of trace.js.
import { plain } from "./words.js";

export const STEPS = 12;
/** The levels of the zoom, from the outside in. */
export const LEVELS = ["model", "block", "head", "dot"];
// Whose controls, and whose place in the map, a level has.
const STEP_OF = { model: 0, block: 8, head: 6, dot: 5 };
export const PUSHES = 9; // of the logits, at most
/** Nothing is changed, neither in the model nor in the text. */
export const UNCHANGED = { put: [], root: true, mask: true, muted: [], cut: [],
  straight: [], weight: null };
/** What is to be seen, and not what is computed. */
export const SEEN = { key: null, beside: null, temperature: 1, topP: 1,
  truth: null, push: 0, trace: null, zoom: null };
const NUMBERS = { temperature: ["temperature", 0.1, 3, 1],
  topP: ["top-p", 0.05, 1, 1], push: ["push", 0, PUSHES, 0] };

/** The step whose controls a state has. */
export function stepOf({ step, zoom }) {
  return zoom ? STEP_OF[zoom] : step;
}

/** Whether the text or the model of a state has been changed. */
export function isChanged(state) {
  return !state.root || !state.mask || state.weight !== null
    || [state.put, state.muted, state.cut, state.straight].some(
      (list) => list.length);
}

/** A state as an address; `start` is what need not be said, and no key is the
 *  one that gets most. */
export function toAddress(state, start, texts) {
  const [text, put] = texts.toAddress(state);
  const parts = [`walk=${plain(text)}`, `step=${state.step}`];
  if (state.zoom) parts.push(`zoom=${state.zoom}`);
  const last = texts.ids(state.text).length - 1;
  if (put.length)
    parts.push(`put=${put.map(([t, id]) => `${t + 1}.${id}`)}`);
  if (state.token !== Math.min(start.token, last))
    parts.push(`token=${state.token + 1}`);
  for (const name of ["block", "head"])
    if (state[name] !== start[name]) parts.push(`${name}=${state[name] + 1}`);
  if (state.key !== null) parts.push(`key=${state.key + 1}`);
  for (const name of ["root", "mask"])
    if (!state[name]) parts.push(`${name}=off`);
  if (state.muted.length)
    parts.push(`mute=${state.muted.map(([b, h]) => `${b + 1}.${h + 1}`)}`);
  for (const name of ["cut", "straight"])
    if (state[name].length)
      parts.push(`${name}=${state[name].map((block) => block + 1)}`);
  if (state.weight) {
    const { block, head, key, share } = state.weight;
    const percent = Math.round(100 * share);
    parts.push(`weight=${block + 1}.${head + 1}.${key + 1}.${percent}`);
  }
  if (state.beside !== null) parts.push(`beside=${state.beside + 1}`);
  if (state.truth !== null) parts.push(`truth=${state.truth}`);
  for (const [name, [said, , , usual]] of Object.entries(NUMBERS))
    if (state[name] !== usual) parts.push(`${said}=${state[name]}`);
  if (state.trace) parts.push(`trace=${state.trace.join(".")}`);
  return `#${parts.join("&")}`;
}

/** What an address says of a walk, or null if it speaks of something else;
 *  #walk-5, the place of step 5 in the page's list, is one too, and #walk-loss
 *  is step 12 with the model's answer as the true token, and #walk-head a level
 *  of the zoom. */
export function fromAddress(hash, start, texts, sizes) {
  const place = /^#walk-(\d+)$/.exec(hash);
  if (place) return { step: whole(place[1], STEPS) + 1 };
  if (hash === "#walk-loss") return { step: STEPS, truth: sizes.answer };
  const level = LEVELS.find((zoom) => hash === `#walk-${zoom}`);
  if (level) return { zoom: level };
  if (!hash.startsWith("#walk=")) return null;
  const said = new URLSearchParams(hash.slice(1));
  const list = (name) => said.get(name)?.split(",") ?? [];
  const pairs = (name) => list(name).map((pair) => pair.split("."));
  const put = pairs("put").map(([t, id]) => [whole(t, texts.most), Number(id)])
    .filter(([, id]) => id >= 0 && id < sizes.all && Number.isInteger(id));
  const found = { ...start, ...UNCHANGED, ...SEEN,
    ...texts.fromAddress(said.get("walk"), put) };
  const n = texts.ids(found.text).length;
  found.put = found.put.filter(([t]) => t < n);
  found.token = Math.min(start.token, n - 1);
  if (said.has("step")) found.step = whole(said.get("step"), STEPS) + 1;
  const within = { ...sizes, token: n, key: n, beside: sizes.block };
  for (const name of ["token", "block", "head", "key", "beside"])
    if (said.has(name)) found[name] = whole(said.get(name), within[name]);
  for (const name of ["root", "mask"]) found[name] = said.get(name) !== "off";
  found.muted = pairs("mute").map(([block, head]) =>
    [whole(block, sizes.block), whole(head, sizes.head)]);
  for (const name of ["cut", "straight"])
    found[name] = list(name).map((block) => whole(block, sizes.block));
  if (said.has("weight")) {
    const [block, head, key, percent] = said.get("weight").split(".");
    found.weight = { block: whole(block, sizes.block),
      head: whole(head, sizes.head), key: whole(key, n),
      share: Math.min(100, Math.max(0, Number(percent) || 0)) / 100 };
  }
  if (said.has("truth"))
    found.truth = whole(Number(said.get("truth")) + 1, sizes.all);
  for (const [name, [word, least, most]] of Object.entries(NUMBERS)) {
    const number = Number(said.get(word));
    if (said.has(word) && number >= least && number <= most)
      found[name] = number;
  }
  if (LEVELS.includes(said.get("zoom"))) found.zoom = said.get("zoom");
  found.trace = said.get("trace")?.split(".").map((part, i) =>
    (i ? Number(part) : part)) ?? null;
  return found;
}

/** A number from 1 to n, counted from 0. */
function whole(text, n) {
  const number = Math.round(Number(text)) || 1;
  return Math.min(n, Math.max(1, number)) - 1;
}
