// The zoom: the model, one of its blocks, one of its heads, one dot product.
// Each level is a picture in which a part is marked that the next shows larger.
import { softmax } from "../tensor.js";
import { leading } from "../generation.js";
import { shape } from "./parts.js";
import { percent, say, signed } from "./strings.js";
import { extent } from "./walk_sheet.js";
import { lengthOf } from "./walk_stream.js";
import { cellOf } from "./walk_vectors.js";

const SHADES = 8; // of a small map
const ACTIVE = 0.1; // a hidden unit, as in step 10
const LABELED = 3; // of the products

/** Many small cells of one color, [column, row, share]: an element for each
 *  shade is much quicker than one for each cell. */
function shaded(role, cells) {
  const shades = Array.from({ length: SHADES }, () => "");
  for (const [column, row, share] of cells) {
    if (share < 0.03) continue; // white
    shades[Math.min(SHADES - 1, Math.floor(share * SHADES))]
      += `M${column} ${row}h1v1h-1z`;
  }
  return shades.map((d, i) => (d && `<path class="walk-fill walk-${role}"`
    + ` fill-opacity="${((i + 1) / SHADES).toFixed(2)}" d="${d}"/>`)).join("");
}

/** A box with small cells in so many columns and rows. */
function box(sheet, x, y, width, height, columns, rows, cells) {
  const group = sheet.put(shape("g"), y + height);
  group.innerHTML = `<rect class="walk-ground" x="${x}" y="${y}" width="${width}"`
    + ` height="${height}"/><g transform="translate(${x} ${y}) scale(${
      width / columns} ${height / rows})">${cells}</g>`;
  return group;
}

/** One head's map, small: a row for each query, a column for each key. */
function smallMap(sheet, x, y, side, rows, chosen) {
  const n = rows.length, past = [], future = [];
  rows.forEach((row, q) => row.forEach((share, s) =>
    (s > q ? future : past).push([s, q, share])));
  const group = box(sheet, x, y, side, side, n, n,
    shaded("weight", past) + shaded("loss", future));
  group.append(sheet.rect(x, y + (chosen * side) / n, side, side / n, "frame"));
  return group;
}

/** The hidden units, each at its own place. */
function smallUnits(sheet, x, y, width, height, units, perRow) {
  const largest = extent(units) || 1, cells = [];
  units.forEach((value, i) => Math.abs(value) > ACTIVE && cells.push(
    [i % perRow, Math.floor(i / perRow), Math.abs(value) / largest]));
  return box(sheet, x, y, width, height, perRow,
    Math.ceil(units.length / perRow), shaded("ffn", cells));
}

/** The key that gets most of a row, and how much. */
function strongest(row) {
  const share = Math.max(...row);
  return [row.indexOf(share), share];
}

/** A head's small map, which leads to a level. */
function headAt(sheet, walk, x, y, side, b, h, zoom) {
  const { states, state: { token, block, head }, names, choose } = walk;
  const map = states.blocks[b].weights[h], [s, share] = strongest(map[token]);
  sheet.spot(smallMap(sheet, x, y, side, map, token), say("walk.head-spot", {
    b: b + 1, h: h + 1, token: names[token], key: names[s],
    share: percent(share) }), null, h === 0,
  () => choose.all({ zoom, block: b, head: h }));
  if (b === block && h === head) sheet.start = [sheet.rows.length - 1, h];
}

const activeOf = (units) => units.reduce((n, value) => n + (value > ACTIVE), 0);

/** The model: in the row of each block the maps of its heads, its hidden
 *  units, and what the model would answer after it. */
function model(sheet, walk) {
  const { states, state, names, name, choose, model: gpt } = walk;
  const { token: t } = state, { blocks, x: first } = states;
  const n = blocks[0].weights.length, { wide } = sheet;
  const left = wide ? 92 : 40, right = wide ? 140 : 82, gap = wide ? 10 : 6;
  const side = Math.min(66, (sheet.width - left - right) / (n + 1) - gap);
  const at = (i) => left + i * (side + gap), end = at(n + 1) - gap + 16;
  const top = (b) => 82 + b * (side + 24), foot = top(blocks.length);
  sheet.put(shape("path", { class: "walk-trunk",
    d: `M7 24V${foot}m-5 -7l5 7l5 -7` }), foot + 4);
  sheet.name(10, names[t], true);
  sheet.text(wide ? end : sheet.width, 10, say("walk.would"),
    `${wide ? "start" : "end"} weight`);
  sheet.text(20, 36, "E + P", "start faint");
  sheet.cells(wide ? left : 62, 36, first[t], { role: "stream", more: false,
    width: end - 16 - (wide ? left : 62), height: 14,
    node: (i) => ["x", t, 0, i], about: (i) => cellOf("x", i, first[t][i]) });
  for (let i = 0; i <= n; i++) sheet.text(at(i) + side / 2, 62, i === n
    ? say(wide ? "walk.written" : "walk.ffn") : wide
      ? say("walk.head", { h: i + 1 }) : `${i + 1}`, "middle faint small");
  blocks.forEach((kept, b) => {
    const y = top(b), here = b === state.block, enter = () =>
      choose.all({ zoom: "block", block: b });
    sheet.rect(left - 8, y - 8, end - left, side + 16, here ? "chip stream" : "chip");
    for (const part of [0.25, 0.75]) sheet.put(shape("circle", {
      class: "walk-plus", cx: 7, cy: y + part * side, r: 5 }), 0);
    sheet.text(20, y + side / 2, wide ? say("walk.after", { b: b + 1 })
      : `${b + 1}`, here ? "start strong" : "start");
    sheet.line(y + side / 2, side + 24, enter);
    for (let h = 0; h < n; h++) headAt(sheet, walk, at(h), y, side, b, h, "block");
    sheet.spot(smallUnits(sheet, at(n), y, side, side, kept.active[t],
      Math.ceil(Math.sqrt(kept.active[t].length))), say("walk.network-spot",
      { b: b + 1, n: activeOf(kept.active[t]), all: kept.active[t].length }),
    null, false, enter);
  });
  [first, ...blocks.map(({ output }) => output)].forEach((x, d) => {
    const shares = softmax(gpt.logits([x[t]])[0]), [id] = leading(shares, 1);
    const y = d ? top(d - 1) + side / 2 : 36;
    const strong = d === blocks.length ? " strong" : "";
    const low = wide || !d ? 0 : 9;
    sheet.text(end, y - low, name(id).slice(0, 9), `start name${strong}`);
    if (d || wide) sheet.text(wide ? sheet.width : end, y + low,
      percent(shares[id]), `${wide ? "end" : "start"}${strong}`);
  });
  const sharp = blocks.reduce((sum, { weights }) => sum + weights.filter(
    (map) => strongest(map[t])[1] > 0.5).length, 0);
  return { n: blocks.length, h: n, last: blocks.length,
    maps: n * blocks.length, sharp };
}

/** A + on the trunk; what is cut has none. */
function plus(sheet, x, y, cut) {
  sheet.put(shape("circle", { class: "walk-plus", cx: x, cy: y, r: 9 }), y + 9);
  sheet.text(x, y, cut ? "✂" : "+", cut ? "middle loss" : "middle strong");
}

/** A block: x goes straight down, and what the heads and the network find is
 *  added to it. */
function block(sheet, walk) {
  const { states, state, names, choose } = walk, { wide } = sheet;
  const { block: b, token: t } = state, kept = states.blocks[b];
  const n = kept.weights.length, left = 36, x = left + (wide ? 84 : 74);
  const gap = wide ? 16 : 8, trunk = 11;
  const side = Math.min(112, (sheet.width - 5 - left + gap) / n - gap);
  const top = 74, low = top + side, units = low + (wide ? 112 : 126);
  const high = 48, foot = units + high + 74;
  sheet.put(shape("path", { class: "walk-trunk",
    d: `M${trunk} 12V${foot - 16}m-6 -8l6 8l6 -8` }), 0);
  const rows = [kept.input, kept.attended, kept.written, kept.output];
  const limit = Math.max(...rows.map((row) => extent(row[t].subarray(0, 16))));
  const strip = (y, words, values, role, node) => {
    sheet.text(left, y, words, `start ${role}`);
    sheet.cells(x, y, values, { role, limit, more: false, height: 20,
      width: sheet.width - x - 72, node: (i) => [...node, i],
      about: (i) => cellOf(words, i, values[i]) });
    sheet.text(sheet.width, y, say("walk.length",
      { n: lengthOf(values).toFixed(1) }), "end faint small");
  };
  const branch = (y, words) => {
    sheet.arrow(trunk, y, left - 4, y);
    sheet.text(left, y, words, "start faint");
  };
  const added = (y, words, values, role, node, cut) => {
    sheet.put(shape("path", { class: "walk-arrow",
      d: `M${left - 4} ${y}H${trunk + 10}m5 -4l-5 4l5 4` }), y);
    plus(sheet, trunk, y, cut);
    strip(y, words, values, role, node);
  };
  strip(12, "x", kept.input[t], "stream", ["x", t, 2 * b]);
  branch(48, say("walk.norm-heads", { n }));
  kept.weights.forEach((map, h) => {
    const from = left + h * (side + gap), middle = from + side / 2;
    const [s, share] = strongest(map[t]);
    const muted = state.muted.some(([own, other]) => own === b && other === h);
    const said = muted ? say("walk.muted") : percent(share);
    if (h === state.head) sheet.rect(from - 4, top - 4, side + 8,
      side + (wide ? 28 : 44), "mark");
    headAt(sheet, walk, from, top, side, b, h, "head");
    const name = wide ? names[s] : names[s].slice(0, Math.floor(side / 7.3));
    sheet.text(middle, low + 13, wide ? `${name} ${said}` : name,
      `middle name small${muted ? " faint" : ""}`);
    if (!wide) sheet.text(middle, low + 29, said, "middle small");
  });
  added(units - 62, say("walk.attention"), kept.attended[t], "weight",
    ["att", t, b], state.cut.includes(b));
  branch(units - 20, say("walk.norm-network", { n: kept.active[t].length }));
  sheet.spot(smallUnits(sheet, left, units, sheet.width - left - 1, high,
    kept.active[t], 64), say("walk.network-spot", { b: b + 1,
    n: activeOf(kept.active[t]), all: kept.active[t].length }), null, true,
  () => choose.all({ step: 10 }));
  added(units + high + 22, say("walk.written"), kept.written[t], "ffn",
    ["net", t, b]);
  strip(foot, say("walk.new"), kept.output[t], "stream", ["x", t, 2 * b + 2]);
  const length = (row) => lengthOf(row[t]).toFixed(1);
  return { b: b + 1, before: length(kept.input), after: length(kept.output),
    added: length(kept.attended), written: length(kept.written) };
}

/** A share in percent; none that is not all is called 100. */
function inHundred(share) {
  return share < 1 ? Math.min(99, Math.round(100 * share)) : 100;
}

/** A head: the weight of every query for every key. */
function head(sheet, { states, state, names, choose }) {
  const { block: b, head: h, token: t, key } = state;
  const { scores, weights, heads } = states.blocks[b];
  const map = weights[h], n = names.length, left = sheet.names;
  const signs = sheet.wide ? 12 : 8; // of a column's name
  const top = 12 + 7.3 * Math.min(signs, Math.max(...names.map((name) => name.length), 4));
  const width = Math.min(36, (sheet.width - left - 2) / n);
  const height = Math.max(Math.min(width, 27), 17), has = width >= 19;
  sheet.text(left - 6, top - 34, say("walk.keys"), "end key small");
  sheet.text(0, top - 12, say("walk.queries"), "start query small");
  let cells = "";
  names.forEach((name, s) => {
    const x = left + (s + 0.5) * width, y = top + s * height;
    const column = sheet.text(x, top - 10, name.slice(0, signs),
      `start name small${s === key ? " strong" : ""}`);
    column.setAttribute("transform", `rotate(-90 ${x} ${top - 5.5}) translate(0 4)`);
    sheet.name(y + height / 2, name, s === t);
    map[s].forEach((share, k) => {
      const at = left + k * width, hidden = k > s && state.mask;
      const role = hidden ? "hidden" : k > s ? "loss" : "weight";
      const opacity = hidden ? 1 : (has ? 0.7 : 1) * share;
      cells += `<g class="walk-cell"><rect class="walk-${role}" x="${at}" y="${y}"`
        + ` width="${width}" height="${height}" fill-opacity="${opacity.toFixed(3)}"/>`
        + (has && share >= 0.005 ? `<text class="walk-middle walk-small" x="${
          at + width / 2}" y="${y + height / 2 + 4}">${inHundred(share)}</text>`
          : "") + "</g>";
    });
  });
  const group = sheet.put(shape("g", { class: "walk-enter" }), top + n * height);
  group.innerHTML = cells;
  map.forEach((row, q) => sheet.rows.push(Array.from(row, (share, s) =>
    Object.assign(group.children[q * n + s], {
      go: () => choose.all({ zoom: "dot", token: q, key: s }),
      about: () => say("walk.pair", { token: names[q], key: names[s],
        score: signed(scores[h][q][s]), share: percent(share) }) }))));
  sheet.start = [t, key];
  sheet.rect(left, top + t * height, n * width, height, "frame");
  const low = top + n * height + 26;
  sheet.text(0, low, say("walk.found"), "start value small");
  sheet.cells(left, low, heads[h][t], { role: "value", width: Math.min(
    n * width, sheet.room(left)), node: (i) => ["mix", t, b, h, i],
  about: (i) => cellOf(say("walk.found"), i, heads[h][t][i]) });
  const [best, share] = strongest(map[t]);
  return { b: b + 1, h: h + 1, best: names[best], share: percent(share), n };
}

/** One dot product: number by number, and what becomes of it. */
function product(sheet, { states, state, names }) {
  const { block: b, head: h, token: t, key: s } = state;
  const { q, k, scores, weights } = states.blocks[b];
  const [query, other] = [q[h][t], k[h][s]], n = query.length;
  const products = query.map((value, i) => value * other[i]);
  const root = state.root ? Math.sqrt(n) : 1, score = scores[h][t][s];
  const share = weights[h][t][s], { width } = sheet, cell = width / n;
  const about = (i) => say("walk.product", { i: i + 1, a: signed(query[i]),
    b: signed(other[i]), product: signed(products[i]) });
  const strip = (y, words, values, role, node) => {
    sheet.text(0, y - 23, words, `start ${role}`);
    return sheet.cells(0, y, values, { role, width, shown: n, height: 24,
      more: false, about, node: (i) => [...node, i] });
  };
  const parts = [strip(34, say("walk.query-of", { token: names[t] }), query,
    "query", ["q", t, b, h]), strip(92, say("walk.key-of", { token: names[s] }),
    other, "key", ["k", s, b, h])];
  sheet.text(0, 128, say("walk.each-product"), "start faint");
  // As high as the largest and as low as the smallest asks for.
  const high = Math.max(0, ...products), low = Math.min(0, ...products);
  const scale = 110 / (high - low || 1), zero = 156 + high * scale;
  const foot = 156 + 110 + 12;
  let bars = "";
  products.forEach((value, i) => {
    const size = Math.abs(value) * scale, x = i * cell;
    bars += `<g class="walk-spot"><rect class="walk-choice" x="${x}" y="${156}"`
      + ` width="${cell}" height="${110}"/><rect class="walk-${value < 0 ? "loss"
        : "weight"}" x="${x + 0.1 * cell}" y="${value < 0 ? zero : zero - size}"`
      + ` width="${0.8 * cell}" height="${size}"/></g>`;
  });
  const group = sheet.put(shape("g"), foot);
  group.innerHTML = bars;
  sheet.put(shape("path", { class: "walk-rule", d: `M0 ${zero}h${width}` }), 0);
  sheet.rows.push([...group.children].map((bar, i) => Object.assign(bar, {
    about: () => about(i), node: ["q", t, b, h, i],
    also: parts.map((part) => part.children[i]) })));
  const largest = leading(products.map(Math.abs), n), labeled = [];
  for (const i of largest) {
    if (labeled.length === LABELED) break;
    if (labeled.some((j) => Math.abs(i - j) * cell < 40)) continue;
    labeled.push(i);
    const x = Math.max(18, Math.min(width - 18, (i + 0.5) * cell));
    sheet.text(x, zero + (products[i] < 0 ? 1 : -1) * (Math.abs(products[i])
      * scale + 9), signed(products[i]), "middle small");
  }
  sheet.start = [sheet.rows.length - 1, largest[0]];
  const sum = score * root, hidden = s > t && state.mask;
  const node = ["score", t, b, h, s];
  let x = 0;
  [[signed(sum), say("walk.summed"), "", node],
    [`÷ ${root.toFixed(2)}`, state.root ? "√D_h" : say("walk.undivided")],
    [signed(score), say("walk.score"), "", node],
    [percent(share), say(hidden ? "walk.masked" : "walk.weight"), "weight"],
  ].forEach(([words, below, role = "", from], i) => {
    const size = Math.max(words.length, below.length) * 7.4 + 14, y = foot + 26;
    const sign = ["", "", "=", sheet.wide ? "softmax →" : "→"][i];
    if (sign) sheet.text(x + 4, y + 22, sign);
    x += [0, 0, 22, sheet.wide ? 74 : 26][i];
    const group = sheet.put(shape("g"), y + 44);
    group.append(sheet.rect(x, y, size, 44, "chip"),
      sheet.text(x + size / 2, y + 14, words, `middle strong ${role}`),
      sheet.text(x + size / 2, y + 32, below, "middle faint small"));
    sheet.spot(group, `${below}: ${words}`, from, i === 0);
    x += size + 6;
  });
  return { token: names[t], key: names[s], n, sum: signed(sum),
    score: signed(score), share: percent(share),
    how: say(state.root ? "walk.by-root" : "walk.by-none",
    { n, score: signed(score) }),
    variant: hidden ? "-hidden" : "" };
}

export const ZOOM = { model, block, head, dot: product };
