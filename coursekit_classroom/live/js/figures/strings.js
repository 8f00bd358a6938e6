// Every word that the figures show or say, in one table for translators.
export const STRINGS = {
  "figure": "Live figure: {title}",
  "failed": "This figure could not come alive: {reason}. The picture shows"
    + " what it begins with.",
  "badge": "Try it",
  "text": "Text",
  "examples": "Texts to try",
  "play": "Play",
  "pause": "Pause",
  "shortened": "Only the first {n} tokens are shown.",
  "empty": "Type something.",
  "layer": "Block",
  "head": "Head",
  "all-heads": "mean of all",
  "query": "query (row)",
  "key": "key (column)",
  "choose-query": "Tokens. Arrow keys choose the query.",
  "share": "“{token}” {percent}",
  "space": "␣",
  "newline": "↵",
  "and": ", ",

  "hero.title": "a transformer predicts the next token",
  "hero.lead": "Text goes in; the probabilities of the next token come out.",
  "hero.through": "In between is a whole transformer of {n} blocks. It runs in this"
    + " page.",
  "hero.begun": "Now try your own text.",
  "hero.text": "Text. Enter samples the next token.",
  "hero.prompts": "Prompts",
  "hero.cause": "Who was hungry?",
  "hero.owner": "Who has it now?",
  "hero.name": "Anna who?",
  "hero.add": "Add a word",
  "hero.tokens": "The text in tokens",
  "hero.earlier": "… {n} earlier",
  "hero.block": "block {layer}",
  "hero.looks": "block {layer}, head {head} looks at “{token}”",
  "hero.looks-short": "looks at “{token}”",
  "hero.attention": "attention {percent}",
  "hero.swap": "⇄ {other}",
  "hero.swap-label": "Swap “{token}” for “{other}”",
  "hero.arcs": "From the last token, “{token}”, block {layer}, head {head}"
    + " looks at {shares}.",
  "hero.second": " Block {layer}, head {head} looks at {shares}.",
  "hero.next": "next token",
  "hero.bars": "The most probable next tokens",
  "hero.others": "{n} others",
  "hero.draw": "Draw",
  "hero.inside": "Go inside",
  "hero.typed": "Of {all} tokens, “{token}” gets {percent}.",
  "hero.try-swap": "Swap “{word}” for “{other}”, or draw.",
  "hero.try-draw": "Draw.",
  "hero.swapped": "With “{word}” instead of “{other}”, “{token}” goes from"
    + " {before} to {percent}.",
  "hero.drawn": "Drawn: “{drawn}”, which had {had}. Of {all} tokens, “{token}”"
    + " now gets {percent}.",
  "hero.split": "“{word}” is not one of the {all} tokens: the model reads it"
    + " in {n} pieces.",

  "attention.title": "attention map",
  "attention.causal": "causal mask",
  "attention.sentence": "Block {layer}, head {head}: the query “{token}”"
    + " (row {row} of {n}) takes most from {shares}.",
  "attention.mean": "Block {layer}, mean of all heads: the query “{token}”"
    + " (row {row} of {n}) takes most from {shares}.",

  "scores.title": "from scores to weights",
  "scores.root": "divide by √Dh = {root}",
  "scores.mask": "causal mask",
  "scores.key": "key",
  "scores.product": "q · k",
  "scores.score": "score",
  "scores.weight": "weight",
  "scores.hidden": "hidden",
  "scores.sum": "The query “{query}”, the key “{key}”, and their products, entry by"
    + " entry. Press another key in the table.",
  "scores.strips": "Entry of the query, entry of the key, product",
  "scores.total": "The {n} products add up to q · k = {product}.",
  "scores.sentence": "The query “{token}” gives {shares}. The largest weight is"
    + " {largest}.",

  "next.title": "the next token",
  "next.prompt": "Beginning of the text",
  "next.temperature": "Temperature",
  "next.top-k": "Top-k",
  "next.top-p": "Top-p",
  "next.all": "all",
  "next.likeliest": "Take the likeliest",
  "next.draw": "Draw one",
  "next.write": "Let it write",
  "next.stop": "Stop",
  "next.back": "Back",
  "next.again": "Start again",
  "next.take": "Take “{token}”",
  "next.written": "Written so far: ",
  "next.bars": "Likeliest next tokens. The frame is the model's probability,"
    + " the bar what your settings make of it.",
  "next.sentence": "The likeliest next token is “{token}”, {percent}."
    + " {n} of {all} tokens can be drawn.",
  "next.none": "none",

  "beam.title": "beam search",
  "beam.beams": "Beams",
  "beam.steps": "Steps",
  "beam.tree-row": "beam search",
  "beam.greedy-row": "greedy search",
  "beam.end": "(end)",
  "beam.best": "Best of {beams} beams after {steps} steps: “{text}”, a mean of"
    + " {score} nats a token.",
  "beam.greedy": "Greedy search: “{text}”, a mean of {score} nats a token.",

  "translator.title": "translator",
  "translator.source": "Source",
  "translator.target": "Translation",
  "translator.sentence": "“{token}” (row {row} of {n}) looks most at {shares}.",
  "translator.end": "end",
  "translator.foreign":
    "This looks like {other}; the model has learned to read {own}.",
  "language.de": "German",
  "language.en": "English",

  "bpe.title": "byte-pair merges",
  "bpe.step": "Merges applied",
  "bpe.before": "Before the first merge: {n} bytes.",
  "bpe.sentence": "Merge {step} of {all}: “{left}” + “{right}” becomes"
    + " token {id}. {n} tokens are left of {bytes} bytes.",
  "bpe.tokens": "Tokens",
  "bpe.merges": "Merges in their order",

  "positions.title": "positions",
  "positions.query": "Position of the query",
  "positions.key": "Position of the key",
  "positions.pair": "hand {n}",
  "positions.sentence": "Query at {m}, key at {n}, distance {distance}: their"
    + " dot product is {product}. Move both by the same step and it stays.",
  "positions.dials": "Hands of the first pairs: the query's and the key's.",
  "positions.curve": "Dot product by distance.",
  "positions.distance": "distance: query − key",
  "positions.product": "dot product",

  "checkpoint.title": "your own model",
  "checkpoint.drop": "Choose a model's zip, or drop it here. Its model.safetensors"
    + " alone can be looked at; with config.json and tokenizer.json it runs, too.",
  "checkpoint.text": "The cat sat on the mat",
  "checkpoint.tensor": "Tensor",
  "checkpoint.shape": "{shape}: {n} numbers, the largest {largest}",
  "checkpoint.picture": "{name}, {shape}: red is positive, blue negative.",
  "checkpoint.total": "{tensors} tensors, {n} numbers in all.",
  "checkpoint.bad": "{file} could not be read: {reason}.",

  "temperature.title": "the temperature of the softmax",
  "temperature.slider": "Temperature",
  "temperature.token": "next token",
  "temperature.score": "logit ÷ τ",
  "temperature.probability": "probability",
  "temperature.others": "{n} others",
  "temperature.all-others": "all others",
  "temperature.axis": "temperature τ",
  "temperature.sentence": "At temperature {temperature}, “{token}” gets {percent}"
    + " and the {n} tokens below the first ones together {rest}; at temperature 1,"
    + " {own} and {before}.",

  "calculator.title": "what a model costs",
  "calculator.preset": "Begin with",
  "calculator.bits": "A stored number has",
  "calculator.bit": "{bits} bits",
  "calculator.blocks": "Blocks L",
  "calculator.width": "Width D",
  "calculator.length": "Context T",
  "calculator.shared": "Query heads per KV head",
  "calculator.parameters": "parameters",
  "calculator.flops": "FLOPs per token",
  "calculator.memory": "of memory to generate {length} tokens",
  "calculator.training": "of memory and {time} of an A100 to train it (16 bytes"
    + " and 20 tokens per parameter; activations not counted)",
  "calculator.part-embedding": "embedding",
  "calculator.part-positions": "positions",
  "calculator.part-attention": "attention",
  "calculator.part-network": "FFN",
  "calculator.part-norms": "norms",
  "calculator.part-head": "unembedding",
  "calculator.part-projections": "projections",
  "calculator.part-scores": "scores, mixing",
  "calculator.part-weights": "parameters",
  "calculator.part-cache": "KV cache",
  "calculator.number-2": "million",
  "calculator.number-3": "billion",
  "calculator.number-4": "trillion",
  "calculator.number-5": "quadrillion",
  "calculator.bytes-0": "bytes",
  "calculator.bytes-1": "kB",
  "calculator.bytes-2": "MB",
  "calculator.bytes-3": "GB",
  "calculator.bytes-4": "TB",
  "calculator.bytes-5": "PB",
  "calculator.second": "{n} seconds",
  "calculator.minute": "{n} minutes",
  "calculator.hour": "{n} hours",
  "calculator.day": "{n} days",
  "calculator.year": "{n} years",
  "calculator.sentence": "{parameters} parameters and {flops} FLOPs per token,"
    + " {scores} of them for scores and mixing. To generate {length} tokens takes"
    + " {memory} of memory, {cache} of it for the KV cache.",

  "depth.title": "the residual stream, block by block",
  "depth.residual": "residual connection, x +",
  "depth.norm": "Norm",
  "depth.pre": "before each part (pre-norm)",
  "depth.post": "after each part (post-norm)",
  "depth.none": "none",
  "depth.times": "Initial weights",
  "depth.size": "how large: the size of an entry",
  "depth.alike": "how alike: the cosine of each two positions",
  "depth.blocks": "blocks",
  "depth.before": "before",
  "depth.chart": "Size of the stream's entries and cosines of its positions, by"
    + " depth. After {blocks} blocks: {size}, and {alike} on average.",
  "depth.sentence-alike": "After {blocks} blocks all positions point the same way:"
    + " their cosine is {alike} on average. An entry has size {size}.",
  "depth.sentence-large": "After {blocks} blocks an entry has size {size}, where"
    + " it began with {from}. The cosine of two positions is {alike} on average.",
  "depth.sentence-small": "After {blocks} blocks hardly anything is left: an entry"
    + " has size {size}. The cosine of two positions is {alike} on average.",
  "depth.sentence-both": "After {blocks} blocks an entry has size {size}, and the"
    + " positions differ: their cosine is {alike} on average.",

  "probe.title": "change one token",
  "probe.program": "Program",
  "probe.change": "Change a token:",
  "probe.choose": "Tokens. Arrow keys choose the one that is changed.",
  "probe.columns": "changed token (column)",
  "probe.rows": "moves (row)",
  "probe.reports": "It reports a loss of ",
  "probe.right-reports": "; the correct program reports {right}. In use: {used}.",
  "probe.tick": "✓",
  "probe.cross": "✗",
  "probe.fails": " (fails)",
  "probe.right": "correct program",
  "probe.no_mask": "no mask",
  "probe.next_token": "mask off by one",
  "probe.over_queries": "softmax over the queries",
  "probe.merged_by_view": "heads joined by reshape",
  "probe.across_batch": "attention along the batch",
  "probe.no_scale": "scores not divided by √Dh",
  "probe.not_shifted": "targets not shifted",
  "probe.softmax_twice": "softmax before the loss",
  "probe.dropout_on": "dropout left on in validation",
  "probe.line-causality": "no position sees the future",
  "probe.line-uses_context": "later positions use the context",
  "probe.line-batch_independence": "a row alone gives its logits",
  "probe.line-asks_for": "the oracle of the next token has loss 0",
  "probe.line-repeats": "two evaluations agree",
  "probe.line-same_in_use": "cache on = cache off",
  "probe.line-trains_everything": "each parameter has a gradient",
  "probe.sentence": "Token {n}, “{letter}”, becomes “{other}”, and the logits move"
    + " at position {moved}. {verdict} {fails} of {lines} checks fail.",
  "probe.early": "{early} of these come before it: a leak.",
  "probe.blind": "Later positions don't notice: the context is not used.",
  "probe.good": "That is right: it and all later ones, none before.",

  "train.title": "train it here",
  "train.text": "Text",
  "train.plays": "Shakespeare's plays",
  "train.stories": "Little stories, with questions",
  "train.python": "This book's Python code",
  "train.own": "Your own text",
  "train.paste": "Your text, at least 20,000 characters. It stays in this page.",
  "train.train": "Train",
  "train.pause": "Pause",
  "train.go-on": "Go on",
  "train.one": "One step",
  "train.reset": "Reset",
  "train.download": "Download",
  "train.file": "trained-here.zip",
  "train.ready": "A recorded run is shown. Press Train for one of your own.",
  "train.loading": "Loading the text …",
  "train.broken": "Training stopped: {reason}. Reset, and train again.",
  "train.short": "A text needs at least {least} characters: got {n}. Paste a"
    + " longer one.",
  "train.long": "A text has at most {most} characters here: got {n}. Paste a"
    + " part of it.",
  "train.signs": "A text has at most {most} different characters here: got"
    + " {n}. Choose one in another script.",
  "train.sentence": "Step {step} of {steps}, {seconds} seconds of training: the"
    + " loss is {loss} nats per character; a uniform guess has {uniform}.",
  "train.done": "All {steps} steps in {seconds} seconds of training: the loss is"
    + " {loss} nats per character; a uniform guess has {uniform}. The model has"
    + " {parameters} parameters.",
  "train.before": "Before training",
  "train.after": "After {seconds} s, {step} steps",
  "train.loss": "loss (nats per character)",
  "train.steps": "training step",
  "train.guess": "uniform guess: ln {n} = {uniform}",
  "train.chart": "Loss by training step: {loss} nats per character after {step}"
    + " steps. A uniform guess has {uniform}.",
  "train.saved": "Saved. In Python: coursekit.load(\"{file}\").",
};

/** A string of the table with its blanks filled. */
export function say(key, values = {}) {
  return STRINGS[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/** A token as it is shown: spaces and line ends can be seen. */
export function visible(text) {
  return text.replaceAll(" ", say("space")).replaceAll("\n", say("newline"));
}

/** A share as it is said: 12%, and where it is small or nearly whole 0.3% or
 *  99.8%; none that is not 0 or whole is called 0% or 100%. */
export function percent(share) {
  const isPlain = share === 0 || share === 1 || (share >= 0.1 && share < 0.9945);
  return isPlain ? `${(100 * share).toFixed(0)}%` : tenths(share);
}

/** The same with one digit behind the point, for shares that are added up. */
export function tenths(share) {
  if (share > 0 && share < 0.0005) return "<0.1%";
  if (share < 1 && share > 0.9994) return ">99.9%";
  return `${(100 * share).toFixed(1)}%`;
}

/** What tenths leave of a whole, so that all that is shown makes 100%; what is
 *  left is not called 0. */
export function othersOf(shares) {
  const rest = 1000 - shares.reduce((sum, p) => sum + Math.round(1000 * p), 0);
  return tenths(Math.max(rest, 0.4) / 1000);
}

/** A number with two digits and a minus sign. */
export function signed(number) {
  return number.toFixed(2).replace("-", "−");
}
