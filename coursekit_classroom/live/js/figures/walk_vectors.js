// Steps 1 to 4 of the walk: from the text to queries, keys and values.
import { dot } from "../tensor.js";
import { leading } from "../generation.js";
import { shape } from "./parts.js";
import { extent } from "./walk_sheet.js";
import { encodeChunk, utf8 } from "../tokenizer.js";
import { say, signed } from "./strings.js";
import { lined } from "./words.js";

const NEAREST = 3, MERGES = 5;

/** 1: the text, its tokens and their ids. */
function tokens(sheet, walk) {
  const { names, ids, before, split, cut, state, choose, tokenizer } = walk;
  const y = sheet.lines(14, lined(tokenizer.decode(ids)), "start text");
  sheet.arrow(16, y + 24, 16, y + 66);
  sheet.text(32, y + 45, say("walk.cut"), "start faint");
  const places = sheet.chips(y + 84, names.map((name, t) => ({
    words: name, below: `${ids[t]}`, choose: () => choose.token(t),
    kinds: [t === state.token && "stream", ids[t] !== before[t] && "put"]
      .filter(Boolean).join(" "),
  })), 42);
  if (walk.grown) {
    const { box } = places.at(-1), name = box.nextSibling;
    for (const part of [box, name, name.nextSibling]) sheet.slide(part, 0, 240);
  }
  const end = places.at(-1).y + 42;
  sheet.arrow(16, end + 18, 16, end + 60);
  sheet.text(32, end + 39, say("walk.list"), "start faint");
  const low = sheet.lines(end + 84, `[${ids.join(", ")}]`, "start name",
    sheet.width / 8.6);
  if (split && tokenizer.ranks) merges(sheet, low + 36, walk);
  return { n: ids.length, id: ids[state.token],
    all: tokenizer.vocabSize.toLocaleString("en-US"), cut,
    word: split?.word.trim(), pieces: split?.n,
    variant: cut ? "-cut" : split ? "-split" : "" };
}

/** A word that is no token, from its bytes to its pieces: merge by merge. */
function merges(sheet, y, { split, tokenizer, name }) {
  const rows = [];
  encodeChunk(utf8(split.word), tokenizer.ranks, (parts) => rows.push(
    parts.map((part) => name(tokenizer.ranks.get(part))).join(" ")));
  const low = sheet.lines(y, say(rows.length > 1 ? "walk.merges"
    : "walk.unmerged", { word: split.word.trim() }), "start faint");
  const most = Math.floor((sheet.width - sheet.names) / 8);
  rows.forEach((row, i) => {
    const isLast = i === rows.length - 1, at = isLast ? Math.min(i, MERGES) : i;
    if (i >= MERGES && !isLast) return;
    const long = row.length > most;
    sheet.text(0, low + 26 + 22 * at, i ? say("walk.merge", { i }) : say("walk.bytes"));
    sheet.text(sheet.names, low + 26 + 22 * at, long
      ? `${row.slice(0, most - 1)}…` : row, isLast ? "start name stream" : "start name");
  });
}

/** 2: the row of E that the id selects, and the rows nearest to it. */
function embedding(sheet, walk) {
  const { ids, state, table, name } = walk;
  const id = ids[state.token];
  const x = sheet.names + (sheet.wide ? 30 : 14), width = sheet.room(x);
  const first = Math.max(0, Math.min(table.length - 5, id - 2));
  const shown = [0, 1, 2, 3, 4].map((i) => first + i);
  const limit = Math.max(...shown.map((row) => extent(table[row].subarray(0, 16))));
  sheet.text(0, 12, say("walk.table", {
    rows: table.length.toLocaleString("en-US"), columns: table[0].length }));
  let from = 0;
  shown.forEach((row, i) => {
    const y = 42 + 24 * i, chosen = row === id;
    if (chosen) {
      from = y;
      sheet.rect(0, y - 12, sheet.width, 24, "mark");
    }
    sheet.name(y, `${row} ${name(row)}`.slice(0, sheet.wide ? 15 : 10), chosen);
    sheet.cells(x, y, table[row], { role: chosen ? "stream" : "plain", width,
      limit, more: false, about: (i) => cellOf(`E[${row}]`, i, table[row][i]) });
  });
  const to = 42 + 24 * 6.2;
  sheet.text(x, 42 + 24 * 5 - 2, "⋮", "start faint");
  sheet.arrow(x + width / 2, 42 + 24 * 4.7, x + width / 2, to - 16);
  sheet.name(to, "x", true);
  sheet.slide(sheet.cells(x, to, table[id], { role: "stream", width, limit,
    node: (i) => ["E", state.token, i],
    about: (i) => cellOf("x", i, table[id][i]) }), 0, from - to);
  sheet.text(0, to + 46, say("walk.nearest"));
  const near = nearest(table, id);
  near.forEach(([row, cosine], i) => {
    const y = to + 72 + 24 * i;
    sheet.name(y, name(row));
    sheet.bar(x, y, width, Math.max(0, cosine), "streambar");
    sheet.text(x + width + 5, y, signed(cosine));
  });
  return { id, near: near.map(([row]) => `“${name(row)}”`).join(", ") };
}

const lengths = new WeakMap(); // of a table's rows

/** The rows whose direction is most like that of a row, with the cosine. */
function nearest(table, id) {
  if (!lengths.has(table))
    lengths.set(table, table.map((row) => Math.sqrt(dot(row, row)) || 1));
  const all = lengths.get(table);
  const cosines = table.map((row, other) => (other === id ? -2
    : dot(row, table[id]) / (all[other] * all[id])));
  return leading(cosines, NEAREST).map((row) => [row, cosines[row]]);
}

/** Two positions whose tokens have changed places; null if none have. */
export function swapped({ put }, before) {
  if (put.length !== 2) return null;
  const [[a, first], [b, second]] = put;
  return first === before[b] && second === before[a] ? [a, b] : null;
}

/** 3, if two words have changed places: their rows of E have moved, and the
 *  rows of P stayed. */
function exchange(sheet, { ids, states, names }, pair) {
  const x = sheet.names + (sheet.wide ? 30 : 14), width = sheet.room(x);
  const kinds = [["embedded", "stream", "", "E"], ["positions", "token", "+", "P"],
    ["x", "stream", "=", "x"]];
  const limit = Math.max(...pair.flatMap((t) => kinds.map(([kind]) =>
    extent(states[kind][t].subarray(0, 16)))));
  pair.forEach((t, n) => kinds.forEach(([kind, role, sign, letter], row) => {
    const y = 22 + 190 * n + 54 * row, values = states[kind][t];
    sheet.name(y, { E: `E[${ids[t]}]`, P: `P[${t + 1}]`, x: "x" }[letter],
      letter === "x");
    if (sign) sheet.text(x - 16, y, sign, "middle sign");
    if (letter === "E") sheet.text(0, y + 20, names[t], "start name faint");
    if (letter === "P")
      sheet.text(0, y + 20, say("walk.place", { t: t + 1 }), "start faint");
    const strip = sheet.cells(x, y, values, { role, width, limit, height: 28,
      about: (i) => cellOf(letter, i, values[i]),
      node: (i) => (letter === "x" ? ["x", t, 0, i] : [letter, t, i]) });
    if (letter === "E") sheet.slide(strip, 0, n ? -190 : 190);
  }));
  const [a, b] = pair;
  return { a: names[a], b: names[b], at: a + 1, to: b + 1, variant: "-swapped" };
}

/** 3: the row of the position is added, cell by cell. */
function position(sheet, walk) {
  const { ids, states, state, names, before } = walk;
  const pair = swapped(state, before);
  if (pair) return exchange(sheet, walk, pair);
  const t = state.token, place = states.positions[t];
  const row = states.embedded[t], sum = states.x[t];
  const x = sheet.names + (sheet.wide ? 30 : 14), width = sheet.room(x);
  const limit = Math.max(...[row, place, sum].map((values) =>
    extent(values.subarray(0, 16))));
  const about = (i) => say("walk.sum", { i: i + 1, a: signed(row[i]),
    b: signed(place[i]), sum: signed(sum[i]) });
  const strip = (y, values, role, node) => sheet.cells(x, y, values,
    { role, width, limit, about, height: 30, node: (i) => [...node, i] });
  sheet.name(30, `E[${ids[t]}]`);
  strip(30, row, "stream", ["E", t]);
  sheet.text(0, 54, names[t], "start name faint");
  sheet.text(x - 16, 96, "+", "middle sign");
  sheet.name(96, `P[${t + 1}]`);
  sheet.slide(strip(96, place, "token", ["P", t]), -24, 0);
  sheet.text(0, 120, say("walk.place", { t: t + 1 }), "start faint");
  sheet.text(x - 16, 162, "=", "middle sign");
  sheet.name(162, "x", true);
  strip(162, sum, "stream", ["x", t, 0]);
  for (let i = 0; i < 4; i++) {
    const y = 212 + 24 * i;
    sheet.text(x + 4, y, about(i));
  }
  sheet.text(x + 4, 212 + 24 * 4, "⋮", "start faint");
  return { t: t + 1 };
}

/** 4: the norm, then three products: query, key and value. */
function projections(sheet, { states, state, model }) {
  const { block, head, token: t } = state;
  const kept = states.blocks[block];
  const x = sheet.names, width = sheet.room(x);
  const normed = kept.normed[t];
  sheet.name(24, "x", true);
  sheet.cells(x, 24, kept.input[t], { role: "stream", width,
    node: (i) => ["x", t, 2 * block, i],
    about: (i) => cellOf("x", i, kept.input[t][i]) });
  sheet.down(x, width, 40, 66, say("walk.norm"));
  sheet.name(84, say("walk.normed"), true);
  const read = sheet.cells(x, 84, normed, { role: "stream", width,
    node: (i) => ["norm", t, 2 * block, i],
    about: (i) => cellOf(say("walk.normed"), i, normed[i]) });
  const size = kept.q[head][t].length, trunk = x - 14, top = 214;
  sheet.put(shape("path", { class: "walk-arrow",
    d: `M${x} 84H${trunk}V${top + 60 * 2}` }), 0);
  const slot = sheet.put(shape("g"), 0), first = [];
  [["q", "query"], ["k", "key"], ["v", "value"]].forEach(([letter, role], n) => {
    const y = top + 60 * n, values = kept[letter][head][t];
    const matrix = model.blocks[block].attention[`w_${letter}`].weight;
    sheet.arrow(trunk, y, x - 3, y);
    sheet.text(x, y - 22, say("walk.times", { letter: letter.toUpperCase() }),
      "start faint");
    sheet.text(0, y, say(`walk.${role}`), `start ${role}`);
    const made = sheet.cells(x, y, values, { role, width, height: 24,
      node: (i) => [letter, t, block, head, i], about: (i) =>
        largestProducts(letter, i, normed, matrix[head * size + i]) });
    [...made.children].forEach((cell, i) => Object.assign(cell, {
      also: [...read.children], reveal: () => oneSum(sheet, slot, letter, role, i,
        normed, matrix[head * size + i]) }));
    first.push(made.firstChild);
  });
  first[0].reveal(); // until the reader points at another
  return {};
}

/** How one number of a query, key or value is made: a row of the matrix, and
 *  its products with norm(x). */
function oneSum(sheet, slot, letter, role, i, row, weights) {
  const x = sheet.names, width = sheet.room(x), end = x + width;
  const products = row.map((value, d) => value * weights[d]);
  slot.replaceChildren(
    sheet.text(0, 122, `W_${letter.toUpperCase()}[${i + 1}]`, `start ${role}`),
    sheet.cells(x, 122, weights, { role, width, more: false }),
    sheet.text(0, 152, say("walk.products-of"), "start small faint"),
    sheet.cells(x, 152, products, { role: "plain", width, more: false }),
    sheet.text(end + 5, 143, say("walk.add-up"), "start small faint"),
    sheet.text(end + 5, 160, signed(dot(row, weights)), "start small strong"));
}

/** What the largest products of a sum are, and the sum. */
function largestProducts(letter, i, row, weights) {
  const products = row.map((value, d) => value * weights[d]);
  const [a, b] = leading(products.map(Math.abs), 2);
  const term = (d) => `${signed(row[d])} · ${signed(weights[d])}`;
  return say("walk.products", { name: letter, i: i + 1, a: term(a), b: term(b),
    n: row.length - 2, sum: signed(dot(row, weights)) });
}

/** What a cell says: its name, its place, its number. */
export function cellOf(name, i, value) {
  return say("walk.cell", { name, i: i + 1, value: signed(value) });
}

export const FIRST_STEPS = [tokens, embedding, position, projections];
