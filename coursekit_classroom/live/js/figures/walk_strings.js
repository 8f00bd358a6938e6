// The words of the walk. In a formula, [[query:q]] is q in the query's color,
// and a letter behind _ stands lower.
import { make } from "./parts.js";
import { STRINGS } from "./strings.js";

Object.assign(STRINGS, {
  "walk.title": "a walk through the model",
  "walk.steps": "Step",
  "walk.step": "Step {step} of 12: {title}",
  "walk.speed": "Speed",
  "walk.pace": "A step every {n} seconds.",
  "walk.back": "Back",
  "walk.next": "Next",
  "walk.reset": "Start again",
  "walk.save": "Save the picture (SVG)",
  "walk.undo": "Undo changes",
  "walk.text": "Text: type your own",
  "walk.word": "Word",
  "walk.put": "In the place of “{token}”",
  "walk.put-none": "no other",
  "walk.exchange": "Change places with",
  "walk.beside": "Next to it",
  "walk.alone": "no other",
  "walk.token": "Token",
  "walk.pick": "{n}: {token}",
  "walk.picture": "Picture of the step. Arrow keys go from number to number.",
  "walk.map-label": "The model, from the text to the next token",
  "walk.picture-zoom": "Picture of the level. Arrow keys go from part to part,"
    + " Enter goes in, Escape goes out.",
  "walk.hint": "Point at a cell for its number, press it for its sum.",
  "walk.hint-zoom": "Press a part to go in; Escape goes out again.",
  "walk.zoom": "Zoom",
  "walk.zoom-leave": "Back to step {step}",
  "walk.crumb.model": "Model",
  "walk.crumb.block": "Block {b}",
  "walk.crumb.head": "Head {h}",
  "walk.crumb.dot": "q · k",
  "walk.crumb.pair": " of “{token}”, “{key}”",
  "walk.its-key": "Key",
  "walk.ffn": "FFN",
  "walk.head-spot": "Block {b}, head {h}: “{token}” gives most, {share}, to “{key}”",
  "walk.network-spot": "Block {b}, feed-forward network: {n} of {all} hidden units"
    + " are above 0.1",
  "walk.norm-heads": "norm, then {n} heads",
  "walk.norm-network": "norm, then the network's {n} hidden units",
  "walk.keys": "keys →",
  "walk.queries": "queries ↓",
  "walk.pair": "“{token}” for “{key}”: score {score}, weight {share}",
  "walk.key-of": "k of {token}",
  "walk.products-of": "products",
  "walk.each-product": "their products, number by number",
  "walk.add-up": "all sum to",
  "walk.summed": "sum",
  "walk.masked": "masked",
  "walk.by-root": "Divided by √{n}, that is the score {score}",
  "walk.by-none": "It is the score, as nothing divides it",
  "walk.root": "÷ √Dh",
  "walk.mask": "causal mask",
  "walk.plus": "the + around attention",
  "walk.gelu": "GELU",
  "walk.on": "head {h}",
  "walk.share": "Weight of “{token}”",
  "walk.temperature": "Temperature τ",
  "walk.topP": "Top-p",
  "walk.draw": "Draw a token",
  "walk.go-on": "Go on with “{token}”",
  "walk.truth": "True token",
  "walk.no-truth": "not given",
  "walk.push": "Push the logits once",

  "walk.trace": "Of what a number is the sum",
  "walk.trace-sum": "{name} is {value}: the sum of {n} terms.",
  "walk.trace-gelu": "{name} is GELU({inner}) = {value}, and {inner} is the sum"
    + " of {n} terms.",
  "walk.trace-learned": "{name} is {value}: a number that was learned.",
  "walk.trace-rest": "… and {n} smaller terms: {sum}",
  "walk.trace-back": "Back in the trace",
  "walk.trace-close": "Close the trace",
  "walk.of.logit": "The logit of “{token}”",
  "walk.of.attlogit": "What attention in block {b} adds to the logit of “{token}”",
  "walk.of.netlogit":
    "What the network in block {b} adds to the logit of “{token}”",
  "walk.of.x": "Dimension {i} of x at “{token}”",
  "walk.of.norm": "Dimension {i} of norm(x) at “{token}”",
  "walk.of.att":
    "Dimension {i} of what attention in block {b} adds to x at “{token}”",
  "walk.of.net":
    "Dimension {i} of what the network in block {b} adds to x at “{token}”",
  "walk.of.unit": "Hidden unit {i} of block {b} at “{token}”",
  "walk.of.q": "Dimension {i} of the query of “{token}”",
  "walk.of.k": "Dimension {i} of the key of “{token}”",
  "walk.of.v": "Dimension {i} of the value of “{token}”",
  "walk.of.mix": "Dimension {i} of what a head found for “{token}”",
  "walk.of.score": "The score of “{token}” for “{key}”",
  "walk.of.E": "Dimension {i} of the embedding of “{token}”",
  "walk.of.P": "Dimension {i} of the row of the position of “{token}”",
  "walk.from.embedding": "embedding",
  "walk.from.position": "position",
  "walk.from.attention": "attention of block {b}",
  "walk.from.network": "network of block {b}",
  "walk.from.token": "head {h} at “{token}”",
  "walk.from.dimension": "number {i}",
  "walk.from.bias": "bias",
  "walk.from.mean": "less the mean",

  "walk.place.tokens": "tokens",
  "walk.place.embedding": "embedding",
  "walk.place.position": "position",
  "walk.place.block": "block {b}",
  "walk.place.logits": "logits",
  "walk.place.next": "next token",
  "walk.short.tokens": "ids",
  "walk.short.embedding": "E",
  "walk.short.position": "P",
  "walk.short.block": "{b}",
  "walk.short.logits": "logits",
  "walk.short.next": "next",

  "walk.answer": "After “{token}” the model expects",
  "walk.intact": "The model as it was trained.",
  "walk.changed": "“{token}”: {before} before, {after} now ({points}). A frame"
    + " shows the share before.",
  "walk.now": "{token} {after}",
  "walk.then-now": "{token} {before} → {after}",
  "walk.points": "{n} points",

  "walk.more": "… {n} more",
  "walk.cell": "{name}, dimension {i}: {value}",
  "walk.cut": "cut into tokens; below each, its id",
  "walk.list": "what the model is given",
  "walk.merges": "“{word}” is no token. From its bytes, merges lead to:",
  "walk.unmerged": "“{word}” is no token, and none of its bytes are merged:",
  "walk.bytes": "bytes",
  "walk.merge": "merge {i}",
  "walk.table": "E has {rows} rows, one per token, and {columns} columns:",
  "walk.nearest": "The three nearest rows, by the cosine:",
  "walk.sum": "dimension {i}: {a} + {b} = {sum}",
  "walk.place": "position {t}",
  "walk.norm": "norm: mean 0, variance 1",
  "walk.normed": "norm(x)",
  "walk.times": "times W_{letter}",
  "walk.query": "query q",
  "walk.key": "key k",
  "walk.value": "value v",
  "walk.products":
    "{name}, dimension {i}: {a} + {b} + {n} smaller products = {sum}",
  "walk.divided": "÷ {root}",
  "walk.undivided": "not divided",
  "walk.query-of": "q of {token}",
  "walk.product": "dimension {i}: {a} · {b} = {product}",
  "walk.scored": "The score of “{token}” is {score}",
  "walk.score": "score",
  "walk.weight": "weight",
  "walk.map": "all queries (rows)",
  "walk.scaled": "weight · value",
  "walk.part": "dimension {i}: {share} · {v} = {part}",
  "walk.mix": "their sum",
  "walk.mixed": "dimension {i}: the sum of {n} products is {sum}",
  "walk.head": "head {h}",
  "walk.looks": "looks at",
  "walk.found": "what it found",
  "walk.without": "without it",
  "walk.muted": "muted",
  "walk.joined": "joined, times W_O",
  "walk.attention": "attention",
  "walk.new": "new x",
  "walk.length": "length {n}",
  "walk.opens": "W_1, then GELU: {n} units",
  "walk.unit": "hidden unit {i}: {value}",
  "walk.strongest": "The five strongest units:",
  "walk.closes": "times W_2",
  "walk.written": "network",
  "walk.would": "would answer",
  "walk.lens": "the next token would be",
  "walk.most": "looks most at",
  "walk.before": "embedding",
  "walk.after": "block {b}",
  "walk.logit": "logit",
  "walk.probability": "probability",
  "walk.again": "joins the text, and step 1 begins again",
  "walk.press": "Draw a token to go on.",
  "walk.chance": "“{token}”: logit {logit}, probability {share}",
  "walk.lost": "loss = −ln p = {loss} (as trained: {before})",
  "walk.pushes": "“{token}”: {p} − {y} = {by}",

  "walk.model.title": "The model: {n} blocks of {h} heads",
  "walk.model.formula":
    "[[stream:x]] ← block_1([[stream:x]]), …, [[stream:x]] ← block_{last}([[stream:x]])",
  "walk.model.sentence": "Each blue square is the attention of one head: a row"
    + " per query, a column per key, with “{token}” framed. In {sharp} of the"
    + " {maps} heads, “{token}” gives one token more than half of its weight."
    + " Press a block to go in.",
  "walk.block.title": "Block {b}: two additions to x",
  "walk.block.formula": "[[stream:x]] ← [[stream:x]] + [[weight:attention]],"
    + " [[stream:x]] ← [[stream:x]] + [[ffn:network]]",
  "walk.block.sentence": "x comes in with length {before}. Attention adds a"
    + " vector of length {added}, the network one of length {written}, and x"
    + " leaves with length {after}. Press a head to go in.",
  "walk.head.title": "Head {h} of block {b}: each query, each key",
  "walk.head.formula": "weights = softmax([[query:Q]] [[key:K]]ᵀ / √D_h),"
    + " masked",
  "walk.head.sentence": "Each row is one query, and its weights sum to 100%."
    + " “{token}” gives {share} to “{best}”. Press a cell for its dot product.",
  "walk.dot.title": "One dot product: q of “{token}”, k of “{key}”",
  "walk.dot.formula": "score = ([[query:q_1]] [[key:k_1]] + [[query:q_2]] [[key:k_2]]"
    + " + …) / √D_h",
  "walk.dot.sentence": "q of “{token}” and k of “{key}” have {n} numbers each."
    + " Their products sum to {sum}. {how}, and after softmax the weight {share}.",
  "walk.dot.sentence-hidden": "q of “{token}” and k of “{key}” have {n} numbers"
    + " each. Their products sum to {sum}. {how}, but “{key}” comes later: the"
    + " mask sets it to −∞, and the weight is 0.",
  "walk.1.title": "The text becomes tokens",
  "walk.1.formula": "text → [[token:ids]]",
  "walk.1.sentence": "The model never sees a letter. It gets the ids of {n}"
    + " tokens: “{token}” is token {id} of {all}.",
  "walk.1.sentence-split": "“{word}” is not one of the {all} tokens: the model"
    + " reads it in {pieces} smaller ones, about which it has learned little. So"
    + " its answer is a guess.",
  "walk.1.sentence-cut": "The text is too long for the walk. The last {n} tokens"
    + " are read, and {cut} before them are left out.",
  "walk.2.title": "An id selects a row of E",
  "walk.2.formula": "[[stream:x]] = row [[token:id]] of E",
  "walk.2.sentence": "Id {id} picks its row of E, and this row is x. The rows"
    + " nearest to it belong to {near}.",
  "walk.3.title": "The position is added",
  "walk.3.formula": "[[stream:x]] = E_i_d + [[token:P_t]]",
  "walk.3.sentence": "Row {t} of the position matrix is added to x, so that the"
    + " same word at another position is another vector.",
  "walk.3.sentence-swapped": "“{a}”, now at position {at}, and “{b}”, now at"
    + " position {to}, have changed places. Their rows of E moved with them, the"
    + " rows of P stayed, so both sums are other vectors.",
  "walk.4.title": "One x becomes query, key and value",
  "walk.4.formula": "[[query:q]] = W_Q norm([[stream:x]]),"
    + " [[key:k]] = W_K norm([[stream:x]]),"
    + " [[value:v]] = W_V norm([[stream:x]])",
  "walk.4.sentence": "Three learned matrices make three vectors from the normed x:"
    + " what it asks, how it is found, what it hands on (block {block}, head"
    + " {head}).",
  "walk.5.title": "The query meets every key",
  "walk.5.formula": "score = [[query:q]] · [[key:k]] / √D_h",
  "walk.5.sentence": "“{token}” holds its query against every key: their numbers"
    + " are multiplied in pairs, and the products are summed. “{best}” gets the"
    + " largest score, {score}.",
  "walk.6.title": "The future falls away, softmax makes weights",
  "walk.6.formula":
    "[[weight:weights]] = softmax(scores), [[loss:future]] = −∞",
  "walk.6.sentence": "Tokens that come later get −∞, and softmax turns the {n}"
    + " other scores into weights that sum to 1: “{best}” gets {share}.",
  "walk.6.sentence-off": "Without the mask, an average query gives {mean} of its"
    + " weight to tokens that come later. The model cheats: it sees what it has to"
    + " predict.",
  "walk.7.title": "The values are mixed",
  "walk.7.formula": "mix = Σ [[weight:weight]] · [[value:v]]",
  "walk.7.sentence": "Each value counts by its weight, {share} for “{best}”, and"
    + " all are summed. Only here does information move from one token to another.",
  "walk.7.sentence-muted": "This head is muted: whatever its weights say, it hands"
    + " on zeros.",
  "walk.8.title": "All heads are joined",
  "walk.8.formula":
    "[[stream:a]] = W_O ([[value:head_1]], …, [[value:head_H]])",
  "walk.8.sentence": "Each of the {n} heads of block {block} has looked for"
    + " itself. Joined and multiplied by one more matrix, they give what is added"
    + " to x. Mute one, and watch the answer.",
  "walk.9.title": "What attention found is added to x",
  "walk.9.formula": "[[stream:x]] ← [[stream:x]] + [[weight:attention]]",
  "walk.9.sentence": "x has length {before}, and attention adds a vector of length"
    + " {added}. Nothing is overwritten: the old x is still in the sum.",
  "walk.9.sentence-off": "Without the +, only what attention found goes on. The"
    + " old x is lost for all later steps.",
  "walk.10.title": "The feed-forward network computes",
  "walk.10.formula":
    "[[stream:x]] ← [[stream:x]] + W_2 [[ffn:GELU(W_1 norm(x))]]",
  "walk.10.sentence": "One matrix spreads x over {n} hidden units, {count} of them"
    + " above 0.1 now; another turns them into a vector that is added to x. Each"
    + " token is on its own.",
  "walk.10.sentence-off": "Without GELU, the two matrices are one linear map: no"
    + " unit can switch off.",
  "walk.11.title": "The block repeats",
  "walk.11.formula": "[[stream:x]] ← block([[stream:x]])",
  "walk.11.sentence": "Steps 4 to 10 are one block. If the model ended after block"
    + " {block}, it would say “{token}” ({share}); from block {first} on it says"
    + " “{last}”.",
  "walk.11.sentence-always": "Steps 4 to 10 are one block. If the model ended"
    + " after block {block}, it would say “{token}” ({share}).",
  "walk.11.sentence-beside": "All blocks do the same, with other weights. If the"
    + " model ended after block {block}, it would say “{token}” ({share}); after"
    + " block {other}, “{last}” ({after}).",
  "walk.12.title": "A token is drawn",
  "walk.12.formula": "[[weight:p]] = softmax(logits / τ)",
  "walk.12.sentence": "The last x has become {n} logits, and softmax turns"
    + " them into probabilities: “{token}” gets {share}.",
  "walk.12.sentence-drawn": "“{drawn}” was drawn. It joins the text, and step"
    + " 1 begins again, one token longer.",
  "walk.12.sentence-top": "Of {n} tokens, {kept} are left: the fewest whose"
    + " probabilities reach {p}. “{token}” gets {share} now.",
  "walk.loss.title": "The true token, and the loss",
  "walk.loss.formula": "[[loss:loss]] = −ln [[weight:p]]_t_r_u_e,"
    + " gradient of the logits = [[weight:p]] − [[token:y]]",
  "walk.loss.sentence": "If “{token}” comes next, the loss is −ln p = {loss}"
    + " nats. The gradient p − y is negative for “{token}” alone: training"
    + " pushes it up by {up}, and each other token down by its probability.",
  "walk.loss.sentence-pushed": "After {n} pushes by y − p, “{token}” has {share}"
    + " and the loss is {loss} nats. Training moves the weights so that the logits"
    + " go this way.",
});

/** A difference of two shares: −39 points. */
export function points(difference) {
  const size = Math.abs(100 * difference);
  const sign = difference < 0 ? "−" : "+";
  const digits = size > 0 && size < 10 ? 1 : 0;
  const shown = size.toFixed(digits);
  return STRINGS["walk.points"].replace("{n}",
    Number(shown) === 0 ? "0" : sign + shown);
}

/** A formula of the table, its parts in the colors of their roles. */
export function formula(text) {
  const lowered = (words) => words.split(/_(\w)/).flatMap((part, i) =>
    (i % 2 ? make("sub", {}, part) : part ? [part] : []));
  return text.split(/\[\[(\w+:[^\]]*)\]\]/).flatMap((part, i) => {
    if (i % 2 === 0) return lowered(part);
    const [role, words] = part.split(":");
    return make("span", { className: `walk-${role}` }, ...lowered(words));
  });
}
