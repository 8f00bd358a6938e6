// Writing: from logits to tokens: coursekit/generation.py.
import { logSoftmax, softmax } from "./tensor.js";

/** Ids by falling number; the lowest id first among equals. */
export function ranking(numbers) {
  const ids = Array.from(numbers, (_, id) => id);
  return ids.sort((a, b) => numbers[b] - numbers[a] || a - b);
}

/** The first n of the ranking, without all the others. */
export function leading(numbers, n) {
  const best = [];
  for (let id = 0; id < numbers.length; id++) {
    if (best.length === n && !(numbers[id] > numbers[best[n - 1]])) continue;
    let at = Math.min(best.length, n - 1);
    while (at > 0 && numbers[id] > numbers[best[at - 1]]) at--;
    best.splice(at, 0, id);
    best.length = Math.min(best.length, n);
  }
  return best;
}

/** Take the likeliest token; the lowest id wins a tie. */
export function greedy(logits) {
  let best = 0;
  for (let id = 1; id < logits.length; id++)
    if (logits[id] > logits[best]) best = id;
  return best;
}

/** Sharpen (below 1) or flatten (above 1) a distribution. */
export function applyTemperature(logits, temperature) {
  return logits.map((logit) => logit / temperature);
}

/** Keep the k likeliest tokens, and those that tie with the k-th. */
export function keepTopK(logits, k) {
  const least = logits[ranking(logits)[Math.min(k, logits.length) - 1]];
  return logits.map((logit) => (logit < least ? -Infinity : logit));
}

/** Keep the smallest set of tokens whose probability reaches p. */
export function keepTopP(logits, p) {
  if (p === 1) return logits; // rounding must not drop the tail
  const probabilities = softmax(logits);
  const kept = logits.map(() => -Infinity);
  let massBefore = 0;
  for (const id of ranking(logits)) {
    if (massBefore >= p) break;
    kept[id] = logits[id];
    massBefore += probabilities[id];
  }
  return kept;
}

/** Temperature, then top-k, then top-p of what is left: probabilities. */
export function filtered(logits, { temperature = 1, topK, topP }) {
  // The largest becomes 0, so that a tiny τ can't overflow.
  const largest = logits[greedy(logits)];
  let kept = logits.map((logit) => logit - largest);
  kept = applyTemperature(kept, temperature);
  if (topK) kept = keepTopK(kept, topK);
  if (topP) kept = keepTopP(kept, topP);
  return softmax(kept);
}

/** Make a function that draws a token. */
export function sampler({ random = Math.random, ...how }) {
  if (how.temperature === 0) return greedy;
  return (logits) => {
    // One uniform number, looked up in the running sum.
    const probabilities = filtered(logits, how);
    const total = probabilities.reduce((sum, p) => sum + p, 0);
    const chance = random() * total;
    let sum = 0;
    return probabilities.findIndex((p) => (sum += p) > chance);
  };
}

/** Write, and hand out each token as soon as it is chosen. */
export function* stream(stepper, prompt, maxNewTokens, choose = greedy,
  stopIds = []) {
  let [logits] = stepper.prefill(prompt);
  for (let n = 0; n < maxNewTokens; n++) {
    const token = choose(logits);
    if (stopIds.includes(token)) return;
    yield token;
    if (n + 1 < maxNewTokens) [logits] = stepper.step([token]);
  }
}

/** Write, and return what was written. */
export function generate(...how) {
  return [...stream(...how)];
}

/** The open beams and the finished hypotheses of one prompt. */
class Search {
  constructor(rules) {
    Object.assign(this, rules);
    this.beams = [{ logProb: 0, tokens: [] }];
    this.parents = []; // the beam that each comes from
    this.finished = [];
  }

  /** Take one step, given {logProb, beam, token}, best first. */
  advance(candidates) {
    const length = this.beams[0].tokens.length + 1;
    const full = length === this.maxNewTokens;
    const beams = [], parents = [];
    candidates.forEach(({ logProb, beam, token }, rank) => {
      const ends = this.stopIds.includes(token);
      const before = this.beams[beam].tokens;
      const tokens = ends ? before : [...before, token];
      if (!ends && !full) {
        beams.push({ logProb, tokens });
        parents.push(beam);
      } else if (rank < this.nBeams) { // it won a place, and gives it up
        const score = logProb / length ** this.lengthPenalty;
        this.finished.push({ tokens, logProb, score, finished: ends, beam });
      }
    });
    this.finished.sort((a, b) => b.score - a.score);
    this.finished.length = Math.min(this.finished.length, this.nBeams);
    this.beams = beams.slice(0, this.nBeams);
    this.parents = parents.slice(0, this.nBeams);
  }

  /** Whether no open beam can still get among the best. */
  isOver() {
    if (this.beams.length === 0) return true;
    if (this.finished.length < this.nBeams) return false;
    const [{ logProb, tokens }] = this.beams;
    const length = this.exhaustive ? this.maxNewTokens : tokens.length;
    const hope = logProb / length ** this.lengthPenalty;
    return hope <= this.finished.at(-1).score;
  }
}

/** Follow the k likeliest beginnings at once; yield the search each step. */
export function* beamSteps(stepper, prompt, { nBeams, maxNewTokens,
  stopIds = [], lengthPenalty = 1, exhaustive = true }) {
  const search = new Search(
    { nBeams, maxNewTokens, stopIds, lengthPenalty, exhaustive });
  let logits = stepper.prefill(prompt);
  while (true) {
    // Each beam may lose one candidate to each stop token.
    search.candidates = rank(logits, search, nBeams * (1 + stopIds.length));
    search.advance(search.candidates);
    yield search;
    if (search.isOver()) return;
    stepper.reorder(search.parents);
    logits = stepper.step(search.beams.map((beam) => beam.tokens.at(-1)));
  }
}

/** The best extensions of all beams, best first. */
function rank(logits, search, nCandidates) {
  const all = logits.flatMap((row, beam) => {
    const logProbs = logSoftmax(row);
    // No beam can give more candidates than are asked for.
    return ranking(logProbs).slice(0, nCandidates).map((token) => ({
      logProb: search.beams[beam].logProb + logProbs[token], beam, token,
    }));
  });
  all.sort((a, b) => b.logProb - a.logProb);
  return all.slice(0, nCandidates);
}
