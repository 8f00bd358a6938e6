// The state of a walk, which its page's address holds:
// #walk=hungry&step=5&token=12&block=2&head=3&mute=1.3,2.4
//
// An address counts from 1, as a reader does; a state counts from 0, but for
// the step.
export const STEPS = 12;
/** Nothing in the model is changed. */
export const UNCHANGED = { root: true, mask: true, muted: [], cut: [],
  straight: [], weight: null };

/** Whether the model of a state is another than the one that was trained. */
export function isChanged(state) {
  return !state.root || !state.mask || state.weight !== null
    || [state.muted, state.cut, state.straight].some((list) => list.length);
}

/** A state as an address; `start` is what need not be said. */
export function toAddress(state, start, words) {
  const parts = [`walk=${encodeURIComponent(words[state.word])}`,
    `step=${state.step}`];
  for (const name of ["token", "block", "head"])
    if (state[name] !== start[name]) parts.push(`${name}=${state[name] + 1}`);
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
  if (state.temperature !== 1) parts.push(`temperature=${state.temperature}`);
  return `#${parts.join("&")}`;
}

/** What an address says of a walk, or null if it speaks of something else;
 *  #walk-5, the place of step 5 in the page's list, is one too. */
export function fromAddress(hash, start, words, sizes) {
  const place = /^#walk-(\d+)$/.exec(hash);
  if (place) return { step: whole(place[1], STEPS) + 1 };
  if (!hash.startsWith("#walk=")) return null;
  const said = new URLSearchParams(hash.slice(1));
  const found = { ...start, ...UNCHANGED, key: null, word: Math.max(0, words.indexOf(said.get("walk"))) };
  if (said.has("step")) found.step = whole(said.get("step"), STEPS) + 1;
  for (const name of ["token", "block", "head"])
    if (said.has(name)) found[name] = whole(said.get(name), sizes[name]);
  for (const name of ["root", "mask"]) found[name] = said.get(name) !== "off";
  const list = (name) => said.get(name)?.split(",") ?? [];
  found.muted = list("mute").map((pair) => {
    const [block, head] = pair.split(".");
    return [whole(block, sizes.block), whole(head, sizes.head)];
  });
  for (const name of ["cut", "straight"])
    found[name] = list(name).map((block) => whole(block, sizes.block));
  if (said.has("weight")) {
    const [block, head, key, percent] = said.get("weight").split(".");
    found.weight = { block: whole(block, sizes.block),
      head: whole(head, sizes.head), key: whole(key, sizes.token),
      share: Math.min(100, Math.max(0, Number(percent) || 0)) / 100 };
  }
  const temperature = Number(said.get("temperature"));
  if (temperature >= 0.1 && temperature <= 3) found.temperature = temperature;
  return found;
}

/** A number from 1 to n, counted from 0. */
function whole(text, n) {
  const number = Math.round(Number(text)) || 1;
  return Math.min(n, Math.max(1, number)) - 1;
}
