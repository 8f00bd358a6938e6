// Steps 9 to 12 of the walk: the residual stream, and what is read off it.
import { dot, softmax } from "../tensor.js";
import { filtered, leading } from "../generation.js";
import { crossEntropy, lossGradient } from "../loss.js";
import { shape } from "./parts.js";
import { cellOf } from "./walk_vectors.js";
import { extent } from "./walk_sheet.js";
import { percent, say, signed } from "./strings.js";
import { lined } from "./words.js";

const SHOWN = 8; // of the likeliest tokens
const ROW_HEIGHT = 26;

/** The length of a vector. */
export const lengthOf = (row) => Math.sqrt(dot(row, row));

/** Three rows, the last the sum of the others, each with its length. */
function sum(sheet, rows, cut) {
  const x = sheet.names + 18, width = sheet.room(x);
  const limit = Math.max(...rows.map(([, values]) =>
    extent(values.subarray(0, 16))));
  const longest = Math.max(...rows.map(([, values]) => lengthOf(values)));
  rows.forEach(([name, values, role, sign, node], n) => {
    const y = 30 + 96 * n;
    const gone = cut && n === 0;
    sheet.text(0, y, name, `start ${role}`);
    if (sign) sheet.text(x - 12, y, gone ? "" : sign, "middle sign");
    const group = sheet.cells(x, y, values, { role, width, limit, height: 30,
      node: (i) => [...node, i],
      about: (i) => cellOf(name, i, values[i]) });
    if (gone) group.setAttribute("opacity", 0.25);
    const length = lengthOf(values);
    sheet.rect(x, y + 22, (width * length) / longest, 5, role,
      gone ? 0.25 : 1);
    sheet.text(x, y + 40, say("walk.length", { n: length.toFixed(1) }),
      "start faint");
  });
  if (cut) sheet.text(x - 12, 126, "✂", "middle loss");
}

/** 9: what attention found is added to x. */
function residual(sheet, { states, state }) {
  const { block, token: t } = state;
  const kept = states.blocks[block], cut = state.cut.includes(block);
  sum(sheet, [
    ["x", kept.input[t], "stream", "", ["x", t, 2 * block]],
    [say("walk.attention"), kept.attended[t], "weight", "+", ["att", t, block]],
    [say("walk.new"), kept.middle[t], "stream", "=", ["x", t, 2 * block + 1]],
  ], cut);
  return { before: lengthOf(kept.input[t]).toFixed(1),
    added: lengthOf(kept.attended[t]).toFixed(1),
    after: lengthOf(kept.middle[t]).toFixed(1), variant: cut ? "-off" : "" };
}

/** 10: x opens into hidden units, some are active; closed again, added. */
function feedForward(sheet, { states, state }) {
  const { block, token: t } = state;
  const kept = states.blocks[block];
  const x = sheet.names, width = sheet.room(x), active = kept.active[t];
  const strip = (y, name, values, role, node) => {
    sheet.text(0, y, name, `start ${role}`);
    sheet.cells(x, y, values, { role, width, height: 22,
      node: (i) => [...node, i], about: (i) => cellOf(name, i, values[i]) });
  };
  strip(20, say("walk.normed"), kept.normed2[t], "stream",
    ["norm", t, 2 * block + 1]);
  sheet.down(x, width, 36, 62, say("walk.opens", { n: active.length }));
  const perRow = 64, cell = sheet.width / perRow, high = 12;
  const limit = extent(active), n = Math.ceil(active.length / perRow);
  for (let r = 0; r < n; r++)
    sheet.cells(0, 76 + high * r, active.subarray(r * perRow, (r + 1) * perRow),
      { role: "ffn", width: cell * perRow, height: high, limit, sign: false,
        shown: perRow, more: false,
        node: (i) => ["unit", t, block, r * perRow + i],
        about: (i) => say("walk.unit", { i: r * perRow + i + 1, value: signed(active[r * perRow + i]) }) });
  const end = 76 + high * n;
  const strongest = leading(active, 5);
  sheet.text(0, end + 12, say("walk.strongest"), "start ffn");
  sheet.lines(end + 32, strongest.map((i) =>
    `${i + 1}:\u00a0${signed(active[i])}`).join("   "), "start");
  sheet.down(x, width, end + 48, end + 74, say("walk.closes"));
  strip(end + 92, say("walk.written"), kept.written[t], "ffn",
    ["net", t, block]);
  sheet.text(x - 10, end + 92, "+", "middle sign");
  strip(end + 130, say("walk.new"), kept.output[t], "stream",
    ["x", t, 2 * block + 2]);
  sheet.text(x - 10, end + 130, "=", "middle sign");
  const count = active.reduce((sum, value) => sum + (value > 0.1), 0);
  const off = state.straight.includes(block);
  return { n: active.length, count, variant: off ? "-off" : "" };
}

/** 11: what the model would answer after each block: the logit lens. */
function depth(sheet, walk) {
  const { states, state, names, name, model, choose } = walk;
  const { token: t } = state;
  const depths = [states.x, ...states.blocks.map((kept) => kept.output)];
  const answers = depths.map((x) => softmax(model.logits([x[t]])[0]));
  if (state.beside !== null) return sideBySide(sheet, walk, answers);
  const likeliest = answers.map((shares) => leading(shares, 2));
  const x = sheet.wide ? 96 : 76, named = 76;
  const looks = sheet.wide ? 150 : 0;
  const width = sheet.width - x - named - 48 - looks;
  sheet.text(x, 10, say("walk.lens"), "start weight");
  if (looks) sheet.text(sheet.width - looks + 14, 10, say("walk.most"), "start");
  answers.forEach((shares, d) => {
    const y = 44 + 62 * d, chosen = d === state.block + 1;
    if (chosen) sheet.rect(0, y - 20, sheet.width, 60, "mark");
    sheet.text(0, y + 10, d ? say("walk.after", { b: d }) : say("walk.before"),
      chosen ? "start strong" : "start");
    likeliest[d].forEach((id, i) => {
      const row = y + 20 * i;
      sheet.text(x, row, name(id), i ? "start name faint" : "start name");
      sheet.bar(x + named, row, width, shares[id], i ? "pale" : "weight");
      sheet.text(x + named + width + 44, row, percent(shares[id]), "end");
    });
    if (looks && d) {
      const [h, s, share] = strongest(states.blocks[d - 1].weights, t);
      sheet.text(sheet.width - looks + 14, y, `${names[s]} ${percent(share)}`,
        "start name");
      sheet.text(sheet.width - looks + 14, y + 20,
        say("walk.head", { h: h + 1 }), "start faint");
    }
    if (d) sheet.line(y + 10, 60, () => choose.block(d - 1));
  });
  const best = (d) => name(likeliest[d][0]);
  const at = state.block + 1, n = answers.length - 1;
  const first = answers.findIndex((_, d) =>
    answers.slice(d).every((_, i) => best(d + i) === best(n)));
  return { block: at, token: best(at), last: best(n), first,
    share: percent(Math.max(...answers[at])),
    variant: first ? "" : "-always" };
}

/** The head that looks hardest at one token before its own: head, key, share. */
function strongest(maps, t) {
  let found = [0, 0, -1];
  maps.forEach((map, h) => map[t].forEach((share, s) => {
    if (s !== t && share > found[2]) found = [h, s, share];
  }));
  return found[2] < 0 ? [0, t, maps[0][t][t]] : found;
}

/** 11, of two blocks: what each of them reads, adds and answers. */
function sideBySide(sheet, { states, state, names, name, choose }, answers) {
  const { token: t } = state, pair = [state.block, state.beside];
  const width = (sheet.width - 24) / 2;
  const said = pair.map((b, n) => {
    const kept = states.blocks[b], x = n * (width + 24);
    if (n) sheet.put(shape("path", { class: "walk-rule", d: `M${x - 12} 0v390` }), 390);
    sheet.text(x, 10, say("walk.after", { b: b + 1 }), "start strong");
    sheet.text(x, 36, say("walk.looks"), "start weight");
    kept.weights.forEach((map, h) => looked(sheet, x, 62 + 26 * h, width,
      map[t], names, h));
    const end = 62 + 26 * kept.weights.length;
    const most = lengthOf(kept.output[t]);
    [["attention", kept.attended[t], "weight", ["att", t, b]],
      ["written", kept.written[t], "ffn", ["net", t, b]]].forEach(
      ([what, row, role, node], i) => {
        const y = end + 12 + 62 * i, length = lengthOf(row);
        sheet.text(x, y, say(`walk.${what}`), `start ${role}`);
        sheet.text(x + width, y, say("walk.length", { n: length.toFixed(1) }),
          "end faint");
        sheet.cells(x, y + 22, row, { role, width, more: false,
          shown: sheet.wide ? 16 : 8, node: (j) => [...node, j],
          about: (j) => cellOf(say(`walk.${what}`), j, row[j]) });
        sheet.rect(x, y + 35, (width * length) / most, 4, role);
      });
    const y = end + 12 + 62 * 2 + 6, shares = answers[b + 1];
    const listed = leading(shares, 3);
    sheet.text(x, y, say("walk.would"), "start weight");
    listed.forEach((id, i) => {
      sheet.text(x, y + 24 + 22 * i, name(id), "start name");
      sheet.bar(x + 76, y + 24 + 22 * i, width - 124, shares[id], "weight");
      sheet.text(x + width, y + 24 + 22 * i, percent(shares[id]), "end");
    });
    sheet.choice(x, 0, width, 24, () => choose.block(b));
    return [b + 1, name(listed[0]), percent(shares[listed[0]])];
  });
  const [[block, token, share], [other, last, after]] = said;
  return { block, token, share, other, last, after, variant: "-beside" };
}

/** Where one head looks: its number, bars, and the token of the largest. */
function looked(sheet, x, y, width, row, names, h) {
  const chart = width - (sheet.wide ? 128 : 92), column = chart / names.length;
  sheet.text(x, y, `${h + 1}`, "start faint");
  row.forEach((share, s) => sheet.rect(x + 14 + s * column, y + 9 - 20 * share,
    Math.max(1, column - 1), 20 * share, "weight"));
  const best = row.indexOf(Math.max(...row));
  sheet.text(x + 20 + chart, y, sheet.wide
    ? `${names[best]} ${percent(row[best])}` : names[best].slice(0, 9),
  "start name small");
}

/** 12: logits become probabilities, and one token is drawn. */
function nextToken(sheet, walk) {
  const { states, state, ids, name, drawn, tokenizer, choose } = walk;
  const { token: t, temperature, topP } = state;
  const logits = states.logits[t], plain = softmax(logits);
  const listed = leading(logits, SHOWN);
  const own = state.truth ?? drawn;
  if (own !== null && !listed.includes(own)) listed[SHOWN - 1] = own;
  const text = lined(tokenizer.decode(ids.slice(0, t + 1)));
  const end = sheet.lines(14, text, "start text");
  if (state.truth !== null) return lossOf(sheet, walk, listed, end);
  const shares = filtered(logits, { temperature, topP });
  const x = sheet.names + 58, width = sheet.width - x - 52;
  const top = end + 74;
  if (drawn !== null) {
    const place = top + ROW_HEIGHT * listed.indexOf(drawn) - end - 14;
    const [{ box, width: wide }] = sheet.chips(end + 16,
      [{ words: name(drawn), kinds: "stream" }]);
    const label = box.nextSibling;
    for (const part of [box, label]) sheet.slide(part, 0, place);
    sheet.text(wide + 10, end + 29, say("walk.again"), "start faint");
  } else sheet.text(0, end + 29, say("walk.press"), "start faint");
  sheet.text(x - 12, top - 20, say("walk.logit"), "end");
  sheet.text(x, top - 20, say("walk.probability"), "start weight");
  listed.forEach((id, i) => {
    const y = top + 6 + ROW_HEIGHT * i;
    sheet.line(y, ROW_HEIGHT, () => choose.trace(["logit", t, id]));
    if (id === drawn)
      sheet.rect(0, y - ROW_HEIGHT / 2, sheet.width, ROW_HEIGHT, "mark");
    sheet.name(y, name(id), id === drawn);
    sheet.text(x - 12, y, signed(logits[id]), "end");
    const bar = sheet.bar(x, y, width, shares[id], "weight", plain[id]);
    sheet.spot(bar, say("walk.chance", { token: name(id),
      logit: signed(logits[id]), share: percent(shares[id]) }),
    ["logit", t, id], true);
    sheet.text(sheet.width, y, percent(shares[id]), "end");
  });
  const kept = shares.reduce((sum, share) => sum + (share > 0), 0);
  return { n: logits.length.toLocaleString("en-US"),
    token: name(listed[0]), share: percent(shares[listed[0]]),
    kept: kept.toLocaleString("en-US"), p: topP,
    drawn: drawn === null ? "" : name(drawn),
    variant: drawn !== null ? "-drawn" : topP < 1 ? "-top" : "" };
}

/** The logits after some pushes against their gradient. */
function pushed(logits, truth, times) {
  let z = Float64Array.from(logits);
  for (let n = 0; n < times; n++) {
    const gradient = lossGradient(z, truth);
    z = z.map((value, id) => value - gradient[id]);
  }
  return z;
}

/** 12, if the true token is given: its loss, and how p − y pushes. */
function lossOf(sheet, { states, state, name }, listed, end) {
  const { truth, push } = state, first = states.logits[state.token];
  const logits = pushed(first, truth, push);
  const plain = softmax(first), shares = softmax(logits);
  const gradient = lossGradient(logits, truth);
  const loss = crossEntropy(logits, truth);
  const right = sheet.wide ? 150 : 112, x = sheet.names;
  const width = sheet.width - x - right - 52, top = end + 74;
  const middle = sheet.width - right / 2 - 22, half = right / 2 - 26;
  sheet.text(0, end + 30, say("walk.lost", { loss: loss.toFixed(2),
    before: crossEntropy(first, truth).toFixed(2) }), "start loss");
  sheet.text(x, top - 20, say("walk.probability"), "start weight");
  sheet.text(middle, top - 20, "p − y", "middle loss");
  sheet.put(shape("path", { class: "walk-rule",
    d: `M${middle} ${top - 8}v${ROW_HEIGHT * listed.length}` }), 0);
  listed.forEach((id, i) => {
    const y = top + 6 + ROW_HEIGHT * i, by = gradient[id];
    if (id === truth)
      sheet.rect(0, y - ROW_HEIGHT / 2, sheet.width, ROW_HEIGHT, "mark");
    sheet.name(y, name(id), id === truth);
    sheet.bar(x, y, width, shares[id], "weight", plain[id]);
    sheet.text(x + width + 46, y, percent(shares[id]), "end");
    // Against the gradient: up, to the right, for the true token alone.
    const length = half * Math.abs(by);
    if (length > 0.5) sheet.put(shape("path", { class: "walk-push",
      d: `M${middle} ${y}h${by < 0 ? length : -length}`
        + `${length > 5 ? `m${by < 0 ? "-5 -4l5 4l-5 4" : "5 -4l-5 4l5 4"}` : ""}` }), y);
    const bar = sheet.text(sheet.width, y, signed(by), "end");
    sheet.spot(bar, say("walk.pushes", { token: name(id), p: shares[id].toFixed(3),
      y: id === truth ? 1 : 0, by: by.toFixed(3).replace("-", "−") }),
    ["logit", state.token, id], true);
  });
  return { token: name(truth), loss: loss.toFixed(2),
    share: percent(shares[truth]), up: percent(-gradient[truth]), n: push,
    variant: push ? "-pushed" : "" };
}

export const STREAM_STEPS = [residual, feedForward, depth, nextToken];
