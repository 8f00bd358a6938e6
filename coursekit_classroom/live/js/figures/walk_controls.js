// What the reader can choose and change at each step of the walk: native
// controls, made anew with each state, but while a slider is moved.
import { leading } from "../generation.js";
import { button, checkbox, field, make, slider } from "./parts.js";
import { say } from "./strings.js";
import { PUSHES, stepOf } from "./walk_state.js";
import { swapped } from "./walk_vectors.js";
import { tokenFor, wordPicker } from "./words.js";

const LIKELIEST = 8; // tokens that may be given as the true one

/** The controls of the walk as it stands. */
export function controls(walk) {
  const { state, walk: { names } } = walk;
  const step = stepOf(state);
  const at = (first, last) => step >= first && step <= last;
  const listed = step === 1 ? [walk.typed.field] : [];
  if (walk.words.length > 1 && walk.texts.word(state) >= 0)
    listed.push(words(walk));
  listed.push(pick(walk, "token", names.map((token, i) =>
    say("walk.pick", { n: i + 1, token }))));
  if (at(4, 11)) listed.push(pick(walk, "block", counted(walk.sizes.block)));
  if (at(4, 7)) listed.push(pick(walk, "head", counted(walk.sizes.head)));
  if (state.zoom === "dot") listed.push(pick(walk, "key", names.map((token, i) =>
    say("walk.pick", { n: i + 1, token }))));
  return [...listed, ...(TOUCH[step]?.(walk) ?? [])];
}

const counted = (n) => Array.from({ length: n }, (_, i) => `${i + 1}`);

/** The page's words, of which the sentence has one. */
function words(walk) {
  const list = make("select", { onchange: () =>
    walk.change(walk.texts.swap(list.value)) });
  list.dataset.name = "word";
  const chosen = walk.texts.word(walk.state);
  walk.words.forEach((word, i) => list.append(make("option",
    { value: word, selected: i === chosen }, word)));
  return field(say("walk.word"), list);
}

/** Another word in the place of the chosen token. */
function replacement(walk) {
  const { state: { put, token }, walk: { ids, before } } = walk;
  const id = (word) => tokenFor(walk.texts.tokenizer, word, before[token]);
  const picker = wordPicker(say("walk.put", { token: walk.walk.names[token] }),
    [["", say("walk.put-none")]], walk.vocabulary, id,
    ids[token] === before[token] ? "" : ids[token], (chosen) => {
      const others = put.filter(([t]) => t !== token);
      walk.change({ put: chosen === "" ? others : inOrder(
        [...others, [token, Number(chosen)]]) });
    });
  picker.list.dataset.name = "put";
  return picker.list.options.length > 1 ? [picker.field] : [];
}

const inOrder = (put) => put.sort(([a], [b]) => a - b);

/** Two words that change places: the chosen token's and another. */
function exchange(walk) {
  const { state, walk: { before, name } } = walk, { token } = state;
  const pair = swapped(state, before);
  const other = pair?.includes(token) ? pair.find((t) => t !== token) : "";
  const list = make("select", { onchange: () => {
    const s = Number(list.value);
    walk.change({ put: list.value === "" ? [] : inOrder(
      [[token, before[s]], [s, before[token]]]) });
  } }, make("option", { value: "" }, say("walk.put-none")));
  list.dataset.name = "exchange";
  before.forEach((id, s) => {
    if (id !== before[token]) list.append(make("option", { value: s,
      selected: s === other }, say("walk.pick", { n: s + 1, token: name(id) })));
  });
  return field(say("walk.exchange"), list);
}

/** A second block, next to the chosen one. */
function beside(walk) {
  const list = make("select", { onchange: () => walk.change(
    { beside: list.value === "" ? null : Number(list.value) }) },
  make("option", { value: "" }, say("walk.alone")));
  list.dataset.name = "beside";
  counted(walk.sizes.block).forEach((text, b) => list.append(make("option",
    { value: b, selected: b === walk.state.beside }, text)));
  return field(say("walk.beside"), list);
}

/** A list to choose a part of the state from. */
function pick(walk, name, options) {
  const id = say({ block: "layer", head: "head", key: "walk.its-key" }[name]
    ?? `walk.${name}`);
  const list = make("select", { onchange: () =>
    walk.change({ [name]: Number(list.value) }) });
  list.dataset.name = name;
  options.forEach((text, value) => list.append(make("option",
    { value, selected: value === walk.state[name] }, text)));
  return field(id, list);
}

/** A box that is checked while the model is as it was trained. */
function part(walk, name, words, checked, changes) {
  const { box, field: label } = checkbox(words, checked, () =>
    walk.change(changes(box.checked)));
  box.dataset.name = name;
  return label;
}

/** A box for something that each block has. */
function ofBlock(walk, name, words) {
  const { block, [name]: list } = walk.state;
  return part(walk, name, words, !list.includes(block), (checked) => ({
    [name]: checked ? list.filter((b) => b !== block) : [...list, block] }));
}

function heads(walk) {
  const { block, muted } = walk.state;
  const is = (h) => ([b, other]) => b === block && other === h;
  return counted(walk.sizes.head).map((h, i) => part(walk, `head${h}`,
    say("walk.on", { h }), !muted.some(is(i)), (checked) => ({
      muted: checked ? muted.filter((one) => !is(i)(one)) : [...muted, [block, i]],
    })));
}

/** One weight of the mix, which the reader sets. */
function weight(walk) {
  const { block, head, token, key } = walk.state;
  const { states, names } = walk.walk;
  const share = states.blocks[block].weights[head][token][key];
  const control = slider(say("walk.share", { token: names[key] }),
    { min: 0, max: 100, value: Math.round(100 * share) }, () => {
      const share = control.value / 100;
      walk.change({ weight: { block, head, key, share } }, true);
    }, (value) => `${value}%`);
  control.input.dataset.name = "weight";
  return control.field;
}

/** How a token is drawn, or which is the true one. */
function drawing(walk) {
  const { truth, push } = walk.state;
  if (truth === null)
    return [...sampling(walk), ...drawButtons(walk), trueToken(walk)];
  const press = button(say("walk.push"), () => walk.change({ push: push + 1 }));
  press.dataset.name = "push";
  press.disabled = push === PUSHES;
  return [trueToken(walk), press];
}

/** The sliders of temperature and top-p. */
function sampling(walk) {
  return [["temperature", { min: 0.1, max: 3, step: 0.1 }, 1],
    ["topP", { min: 0.05, max: 1, step: 0.05 }, 2]].map(([name, range, digits]) => {
    const control = slider(say(`walk.${name}`),
      { ...range, value: walk.state[name] },
      () => walk.change({ [name]: control.value }, true),
      (value) => value.toFixed(digits));
    control.input.dataset.name = name;
    return control.field;
  });
}

function drawButtons(walk) {
  const draw = button(say("walk.draw"), () => walk.drawToken());
  draw.dataset.name = "draw";
  if (walk.drawn === null) return [draw];
  return [draw, button(say("walk.go-on", { token: walk.name(walk.drawn) }),
    () => walk.goOn())];
}

/** Which token is the true one: of the text the next, the likeliest, any. */
function trueToken(walk) {
  const { state: { truth, token }, walk: { ids, states, name } } = walk;
  const likeliest = leading(states.logits[token], LIKELIEST);
  const known = [...new Set([...ids.slice(token + 1, token + 2), ...likeliest,
    ...(truth === null ? [] : [truth])])];
  const picker = wordPicker(say("walk.truth"), [["", say("walk.no-truth")],
    ...known.map((id) => [id, name(id)])], walk.vocabulary,
  (word) => tokenFor(walk.texts.tokenizer, word, likeliest[0]), truth ?? "",
  (chosen) => walk.change({ push: 0,
    truth: chosen === "" ? null : Number(chosen) }));
  picker.list.dataset.name = "truth";
  return picker.field;
}

const TOUCH = {
  1: replacement,
  3: (walk) => [exchange(walk)],
  5: (walk) => [part(walk, "root", say("walk.root"), walk.state.root,
    (root) => ({ root }))],
  6: (walk) => [part(walk, "mask", say("walk.mask"), walk.state.mask,
    (mask) => ({ mask }))],
  7: (walk) => [weight(walk)],
  8: heads,
  9: (walk) => [ofBlock(walk, "cut", say("walk.plus"))],
  10: (walk) => [ofBlock(walk, "straight", say("walk.gelu"))],
  11: (walk) => [beside(walk)],
  12: drawing,
};
