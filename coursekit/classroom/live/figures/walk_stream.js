// Steps 9 to 12 of the walk: the residual stream, and what is read off it.
import { dot, softmax } from "../tensor.js";
import { applyTemperature, ranking } from "../generation.js";
import { cellOf } from "./walk_vectors.js";
import { extent } from "./walk_sheet.js";
import { say, signed } from "./strings.js";
import { shareOf } from "./walk_strings.js";

const SHOWN = 8; // of the likeliest tokens
const ROW_HEIGHT = 26;

const lengthOf = (row) => Math.sqrt(dot(row, row));

/** Three rows, the last the sum of the others, each with its length. */
function sum(sheet, rows, cut) {
  const x = sheet.names + 18, width = sheet.room(x);
  const limit = Math.max(...rows.map(([, values]) =>
    extent(values.subarray(0, 16))));
  const longest = Math.max(...rows.map(([, values]) => lengthOf(values)));
  rows.forEach(([name, values, role, sign], n) => {
    const y = 30 + 96 * n;
    const gone = cut && n === 0;
    sheet.text(0, y, name, `start ${role}`);
    if (sign) sheet.text(x - 12, y, gone ? "" : sign, "middle sign");
    const group = sheet.cells(x, y, values, { role, width, limit, height: 30,
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
    ["x", kept.input[t], "stream", ""],
    [say("walk.attention"), kept.attended[t], "weight", "+"],
    [say("walk.new"), kept.middle[t], "stream", "="],
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
  const strip = (y, name, values, role) => {
    sheet.text(0, y, name, `start ${role}`);
    sheet.cells(x, y, values, { role, width, height: 22,
      about: (i) => cellOf(name, i, values[i]) });
  };
  strip(20, say("walk.normed"), kept.normed2[t], "stream");
  sheet.arrow(x + width / 2, 36, x + width / 2, 62);
  sheet.text(x + width / 2 + 12, 48, say("walk.opens",
    { n: active.length }), "start faint");
  const perRow = 64, cell = sheet.width / perRow, high = 12;
  const limit = extent(active), n = Math.ceil(active.length / perRow);
  for (let r = 0; r < n; r++)
    sheet.cells(0, 76 + high * r, active.subarray(r * perRow, (r + 1) * perRow),
      { role: "ffn", width: cell * perRow, height: high, limit, sign: false,
        shown: perRow, more: false, about: (i) => say("walk.unit",
          { i: r * perRow + i + 1, value: signed(active[r * perRow + i]) }) });
  const end = 76 + high * n;
  const strongest = ranking(active).slice(0, 5);
  sheet.text(0, end + 12, say("walk.strongest"), "start ffn");
  sheet.lines(end + 32, strongest.map((i) =>
    `${i + 1}:\u00a0${signed(active[i])}`).join("   "), "start");
  sheet.arrow(x + width / 2, end + 48, x + width / 2, end + 74);
  sheet.text(x + width / 2 + 12, end + 60, say("walk.closes"), "start faint");
  strip(end + 92, say("walk.written"), kept.written[t], "ffn");
  sheet.text(x - 10, end + 92, "+", "middle sign");
  strip(end + 130, say("walk.new"), kept.output[t], "stream");
  sheet.text(x - 10, end + 130, "=", "middle sign");
  const count = active.reduce((sum, value) => sum + (value > 0.1), 0);
  const off = state.straight.includes(block);
  return { n: active.length, count, variant: off ? "-off" : "" };
}

/** 11: what the model would answer after each block: the logit lens. */
function depth(sheet, { states, state, names, model, choose }) {
  const { token: t } = state;
  const depths = [states.x, ...states.blocks.map((kept) => kept.output)];
  const answers = depths.map((x) => softmax(model.logits([x[t]])[0]));
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
    ranking(shares).slice(0, 2).forEach((id, i) => {
      const row = y + 20 * i;
      sheet.text(x, row, states.name(id), i ? "start name faint" : "start name");
      sheet.bar(x + named, row, width, shares[id], i ? "pale" : "weight");
      sheet.text(x + named + width + 44, row, shareOf(shares[id]), "end");
    });
    if (looks && d) {
      const [h, s, share] = strongest(states.blocks[d - 1].weights, t);
      sheet.text(sheet.width - looks + 14, y, `${names[s]} ${shareOf(share)}`,
        "start name");
      sheet.text(sheet.width - looks + 14, y + 20,
        say("walk.head", { h: h + 1 }), "start faint");
    }
    if (d) sheet.line(y + 10, 60, () => choose.block(d - 1));
  });
  const best = (d) => states.name(ranking(answers[d])[0]);
  const at = state.block + 1, n = answers.length - 1;
  const first = answers.findIndex((_, d) =>
    answers.slice(d).every((_, i) => best(d + i) === best(n)));
  return { block: at, token: best(at), last: best(n), first,
    share: shareOf(Math.max(...answers[at])),
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

/** 12: logits become probabilities, and one token is drawn. */
function nextToken(sheet, { states, state, text, drawn }) {
  const logits = states.logits[state.token];
  const plain = softmax(logits);
  const shares = softmax(applyTemperature(logits, state.temperature));
  const listed = ranking(logits).slice(0, SHOWN);
  if (drawn !== null && !listed.includes(drawn)) listed[SHOWN - 1] = drawn;
  const x = sheet.names + 58, width = sheet.width - x - 52;
  const end = sheet.lines(14, text, "start text");
  const top = end + 74;
  if (drawn !== null) {
    const name = states.name(drawn);
    const place = top + ROW_HEIGHT * listed.indexOf(drawn) - end - 14;
    const [{ box, width: wide }] = sheet.chips(end + 16,
      [{ words: name, kinds: "stream" }]);
    const label = box.nextSibling;
    for (const part of [box, label]) sheet.slide(part, 0, place);
    sheet.text(wide + 10, end + 29, say("walk.again"), "start faint");
  } else sheet.text(0, end + 29, say("walk.press"), "start faint");
  sheet.text(x - 12, top - 20, say("walk.logit"), "end");
  sheet.text(x, top - 20, say("walk.probability"), "start weight");
  listed.forEach((id, i) => {
    const y = top + 6 + ROW_HEIGHT * i;
    if (id === drawn)
      sheet.rect(0, y - ROW_HEIGHT / 2, sheet.width, ROW_HEIGHT, "mark");
    sheet.name(y, states.name(id), id === drawn);
    sheet.text(x - 12, y, signed(logits[id]), "end");
    sheet.bar(x, y, width, shares[id], "weight", plain[id]);
    sheet.text(sheet.width, y, shareOf(shares[id]), "end");
  });
  return { n: logits.length.toLocaleString("en-US"),
    token: states.name(listed[0]), share: shareOf(shares[listed[0]]),
    drawn: drawn === null ? "" : states.name(drawn),
    variant: drawn === null ? "" : "-drawn" };
}

export const STREAM_STEPS = [residual, feedForward, depth, nextToken];
