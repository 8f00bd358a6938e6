// What the reader can choose and change at each step of the walk: native
// controls, made anew with each state, but while a slider is moved.
import { button, checkbox, field, make, slider } from "./parts.js";
import { say } from "./strings.js";

/** The controls of the walk as it stands. */
export function controls(walk) {
  const { state, walk: { names } } = walk;
  const { step } = state;
  const at = (first, last) => step >= first && step <= last;
  const listed = [];
  if (walk.words.length > 1) listed.push(pick(walk, "word", walk.words));
  if (step > 1) listed.push(pick(walk, "token", names.map((token, i) =>
    say("walk.pick", { n: i + 1, token }))));
  if (at(4, 11)) listed.push(pick(walk, "block", counted(walk.sizes.block)));
  if (at(4, 7)) listed.push(pick(walk, "head", counted(walk.sizes.head)));
  return [...listed, ...(TOUCH[step]?.(walk) ?? [])];
}

const counted = (n) => Array.from({ length: n }, (_, i) => `${i + 1}`);

/** A list to choose a part of the state from. */
function pick(walk, name, options) {
  const id = say(name === "block" ? "layer" : name === "head" ? "head"
    : `walk.${name}`);
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

function temperature(walk) {
  const control = slider(say("walk.temperature"),
    { min: 0.1, max: 3, step: 0.1, value: walk.state.temperature },
    () => walk.change({ temperature: control.value }, true),
    (value) => value.toFixed(1));
  const draw = button(say("walk.draw"), () => walk.drawToken());
  draw.dataset.name = "draw";
  control.input.dataset.name = "temperature";
  return [control.field, draw];
}

const TOUCH = {
  5: (walk) => [part(walk, "root", say("walk.root"), walk.state.root,
    (root) => ({ root }))],
  6: (walk) => [part(walk, "mask", say("walk.mask"), walk.state.mask,
    (mask) => ({ mask }))],
  7: (walk) => [weight(walk)],
  8: heads,
  9: (walk) => [ofBlock(walk, "cut", say("walk.plus"))],
  10: (walk) => [ofBlock(walk, "straight", say("walk.gelu"))],
  12: temperature,
};
