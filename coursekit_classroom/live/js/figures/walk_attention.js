// Steps 5 to 8 of the walk: attention, from scores to the heads' outputs.
import { dot } from "../tensor.js";
import { shape } from "./parts.js";
import { cellOf } from "./walk_vectors.js";
import { extent } from "./walk_sheet.js";
import { percent, say, signed } from "./strings.js";
import { points } from "./walk_strings.js";

const ROW = 26;

/** 5: the query meets every key: products are summed to scores. */
function scores(sheet, { states, state, names, choose }) {
  const { block, head, token: t, key } = state;
  const { q, k, scores: found } = states.blocks[block];
  const query = q[head][t], row = found[head][t];
  const root = state.root ? Math.sqrt(query.length) : 1;
  const x = sheet.names, numbers = sheet.wide ? 150 : 116;
  const width = sheet.room(x, numbers), [first, second] = [
    x + width + numbers / 2 - 6, sheet.width];
  const line = (y, values, name, s) => {
    sheet.name(y, name, s === t);
    sheet.cells(x, y, values, { role: "key", width, more: false,
      node: (i) => ["k", s, block, head, i], about: (i) =>
        say("walk.product", { i: i + 1, a: signed(query[i]),
          b: signed(values[i]), product: signed(query[i] * values[i]) }) });
  };
  sheet.text(first, 10, "q · k", "end");
  sheet.text(second, 10, say(state.root ? "walk.divided" : "walk.undivided",
    { root: root.toFixed(2) }), "end");
  sheet.text(0, 34, say("walk.query-of", { token: names[t] }), "start query");
  sheet.cells(x, 34, query, { role: "query", width, more: false,
    node: (i) => ["q", t, block, head, i],
    about: (i) => cellOf("q", i, query[i]) });
  sheet.text(x + width + 8, 34, say("walk.more", { n: query.length - 16 }),
    "start faint");
  const limit = extent(row), best = row.indexOf(Math.max(...row));
  names.forEach((name, s) => {
    const y = 66 + ROW * s;
    sheet.line(y, ROW, () => choose.key(s));
    if (s === key) sheet.rect(0, y - ROW / 2, sheet.width, ROW, "mark");
    line(y, k[head][s], name, s);
    sheet.text(first, y, signed(row[s] * root), "end");
    const bar = (56 * Math.max(0, row[s])) / limit; // none if they disagree
    sheet.rect(second + 2 - bar, y - 9, bar, 18, "tint");
    sheet.spot(sheet.text(second, y, signed(row[s]),
      s === best ? "end strong" : "end"), say("walk.scored",
      { token: name, score: signed(row[s]) }), ["score", t, block, head, s]);
  });
  return { token: names[t], best: names[best], score: signed(row[best]) };
}

/** 6: the future falls away, softmax makes shares of the rest. */
function weights(sheet, { states, state, names, choose }) {
  const { block, head, token: t } = state;
  const { scores: found, weights: maps } = states.blocks[block];
  const row = maps[head][t];
  const side = sheet.wide ? cellIn(sheet, names.length) * names.length + 8 : 0;
  const x = sheet.names + 58, width = sheet.width - side - x - 46;
  sheet.text(sheet.names + 46, 10, say("walk.score"), "end");
  sheet.text(x, 10, say("walk.weight"), "start weight");
  names.forEach((name, s) => {
    const y = 34 + ROW * s, future = s > t, hidden = future && state.mask;
    sheet.name(y, name, s === t);
    sheet.text(sheet.names + 46, y, hidden ? "−∞" : signed(found[head][t][s]),
      hidden ? "end faint" : "end");
    if (hidden) sheet.rect(x, y - 7, width, 14, "hidden");
    sheet.bar(x, y, width, row[s], future ? "loss" : "weight");
    sheet.text(x + width + 42, y, percent(row[s]), "end");
    sheet.choice(0, y - ROW / 2, x + width + 46, ROW, () => choose.token(s));
  });
  const [left, top] = sheet.wide
    ? [sheet.width - side + 8, 34] : [sheet.names, 34 + ROW * names.length + 22];
  map(sheet, left, top, maps[head], t, state.mask, choose);
  const cheated = row.reduce((sum, share, s) => sum + (s > t ? share : 0), 0);
  const all = maps[head].reduce((sum, shares, q) => sum
    + shares.reduce((own, share, s) => own + (s > q ? share : 0), 0), 0);
  return { token: names[t], best: names[row.indexOf(Math.max(...row))],
    share: percent(Math.max(...row)), n: t + 1, future: percent(cheated),
    mean: percent(all / names.length), variant: state.mask ? "" : "-off" };
}

/** The side of a cell of the map of n tokens. */
function cellIn({ wide, width, names }, n) {
  return Math.min(...(wide ? [14, 190 / n] : [15, (width - names) / n]));
}

/** The map of all queries: what the mask hides is empty, or red. */
function map(sheet, left, top, rows, chosen, masked, choose) {
  const cell = cellIn(sheet, rows.length);
  sheet.text(left, top - 12, say("walk.map"), "start faint");
  rows.forEach((row, q) => row.forEach((share, s) => {
    const future = s > q;
    const kinds = future && masked ? "hidden" : future ? "loss" : "weight";
    const opacity = future && masked ? 1 : Math.max(0.04, share);
    sheet.rect(left + s * cell, top + q * cell, cell, cell,
      `${kinds} cellborder`, opacity);
  }));
  rows.forEach((_, q) => sheet.choice(left, top + q * cell,
    cell * rows.length, cell, () => choose.token(q)));
  sheet.rect(left, top + chosen * cell, rows.length * cell, cell, "frame");
}

/** 7: each value, as long as its weight says, and their sum. */
function mix(sheet, { states, intact, state, names, choose }) {
  const { block, head, token: t, key } = state;
  const { v, weights: maps, heads } = states.blocks[block];
  const row = maps[head][t], before = intact.blocks[block].weights[head][t];
  const bars = sheet.wide ? 110 : 56;
  const start = sheet.names, x = start + bars + 48;
  const width = sheet.room(x, sheet.wide ? 72 : 4);
  const parts = names.map((_, s) => v[head][s].map((value) => value * row[s]));
  const limit = Math.max(...parts.map((part) => extent(part.subarray(0, 16))),
    extent(heads[head][t].subarray(0, 16)));
  sheet.text(start, 10, say("walk.weight"), "start weight");
  sheet.text(x, 10, say("walk.scaled"), "start value");
  names.forEach((name, s) => {
    const y = 34 + ROW * s;
    sheet.line(y, ROW, () => choose.key(s));
    if (s === key) sheet.rect(0, y - ROW / 2, sheet.width, ROW, "mark");
    sheet.name(y, name, s === t);
    sheet.bar(start, y, bars, row[s], s > t ? "loss" : "weight", before[s]);
    sheet.drag(start, y - ROW / 2, bars, ROW, (share) => choose.quietly(
      { key: s, weight: { block, head, key: s, share } }));
    sheet.text(start + bars + 42, y, percent(row[s]), "end");
    sheet.cells(x, y, parts[s], { role: "value", width, limit, more: false,
      node: (i) => ["v", s, block, head, i],
      about: (i) => say("walk.part", { i: i + 1, share: row[s].toFixed(2),
        v: signed(v[head][s][i]), part: signed(parts[s][i]) }) });
  });
  const end = 34 + ROW * names.length + 14;
  sheet.arrow(x + width / 2, end - 24, x + width / 2, end - 4);
  sheet.text(x + width / 2 + 12, end - 15, "Σ", "start");
  sheet.text(0, end + 14, say("walk.mix"), "start value");
  const muted = state.muted.some(([b, h]) => b === block && h === head);
  sheet.cells(x, end + 14, heads[head][t], { role: "value", width, limit,
    height: 24, more: sheet.wide, node: (i) => ["mix", t, block, head, i],
    about: (i) => say("walk.mixed",
      { i: i + 1, n: names.length, sum: signed(heads[head][t][i]) }) });
  return { token: names[t], best: names[row.indexOf(Math.max(...row))],
    share: percent(Math.max(...row)), variant: muted ? "-muted" : "" };
}

/** 8: all heads of the block, joined, through W_O. */
function heads(sheet, { states, state, names, choose, effects }) {
  const { block, token: t } = state;
  const kept = states.blocks[block];
  const chart = sheet.wide ? 120 : 84, x = 62 + chart + 14;
  const width = sheet.room(x, sheet.wide ? 104 : 74);
  sheet.text(62, 10, say("walk.looks"), "start weight");
  sheet.text(x, 10, say("walk.found"), "start value");
  sheet.text(sheet.width, 10, say("walk.without"), "end");
  kept.heads.forEach((head, h) => {
    const y = 44 + 62 * h, row = kept.weights[h][t];
    const muted = state.muted.some(([b, other]) => b === block && other === h);
    if (h === state.head)
      sheet.rect(0, y - 25, sheet.width, 60, "mark");
    sheet.text(0, y, say("walk.head", { h: h + 1 }),
      h === state.head ? "start strong" : "start");
    const column = chart / names.length;
    row.forEach((share, s) => sheet.rect(62 + s * column, y + 14 - 30 * share,
      column - 1.5, 30 * share, s > t ? "loss" : "weight"));
    sheet.put(shape("path", { class: "walk-rule",
      d: `M62 ${y + 14.5}h${chart}` }), y + 15);
    const best = row.indexOf(Math.max(...row));
    sheet.text(62, y + 25, `${names[best]} ${percent(row[best])}`,
      "start name small");
    sheet.line(y + 5, 60, () => choose.head(h));
    sheet.cells(x, y, head[t], { role: "value", width, more: false,
      node: (i) => ["mix", t, block, h, i],
      about: (i) => cellOf(say("walk.head", { h: h + 1 }), i, head[t][i]) });
    const effect = effects[h];
    sheet.text(sheet.width, y, muted ? say("walk.muted")
      : effect === undefined ? "…" : points(effect), muted ? "end loss" : "end");
  });
  const end = 44 + 62 * kept.heads.length;
  const left = sheet.wide ? sheet.names : 62, wide = sheet.room(left);
  sheet.down(left, wide, end - 18, end + 6, say("walk.joined"));
  sheet.text(0, end + 24, say("walk.attention"), "start stream");
  sheet.cells(left, end + 24, kept.attended[t], { role: "stream", width: wide,
    height: 24, node: (i) => ["att", t, block, i],
    about: (i) => cellOf("a", i, kept.attended[t][i]) });
  return { n: kept.heads.length, block: block + 1 };
}

export const ATTENTION_STEPS = [scores, weights, mix, heads];
