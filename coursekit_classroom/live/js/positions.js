// How order enters: coursekit/positions.py.
//
// Positions act at one of three places: they are added to the embeddings, they
// rotate queries and keys, or they lower the scores of distant keys.
import { add } from "./tensor.js";

/** Angles a step for each pair: 1, and down to nearly 1 / base. */
export function frequencies(size, base = 10000) {
  return Array.from({ length: size / 2 }, (_, i) => base ** ((-2 * i) / size));
}

/** The paper's code of one position: pairs of hands at many speeds. */
export function sinusoidal(position, dModel, layout, base) {
  const code = new Float32Array(dModel);
  frequencies(dModel, base).forEach((frequency, i) => {
    const [a, b] = pair(i, dModel, layout);
    code[a] = Math.sin(position * frequency);
    code[b] = Math.cos(position * frequency);
  });
  return code;
}

/** Which coordinates make pair number i: neighbors, or i and i + size/2. */
function pair(i, size, layout) {
  return layout === "halves" ? [i, i + size / 2] : [2 * i, 2 * i + 1];
}

/** Turn each pair of coordinates of one row by its angle. */
export function rotatePairs(row, angles, layout) {
  const turned = new Float32Array(row.length);
  angles.forEach((angle, i) => {
    const [a, b] = pair(i, row.length, layout);
    const cos = Math.cos(angle), sin = Math.sin(angle);
    turned[a] = row[a] * cos - row[b] * sin;
    turned[b] = row[a] * sin + row[b] * cos;
  });
  return turned;
}

/** How fast each head loses interest with distance. */
export function alibiSlopes(nHeads) {
  const power = 2 ** Math.floor(Math.log2(nHeads));
  return Array.from({ length: nHeads }, (_, h) =>
    h < power
      ? 2 ** ((-8 * (h + 1)) / power)
      : 2 ** ((-4 * (2 * (h - power) + 1)) / power));
}

/** No positions at all, and the three places where others act. */
class Positions {
  forward(x, positions) {
    return x;
  }

  rotation(positions) {
    return null;
  }

  bias(nQueries, nKeys) {
    return null;
  }
}

class LearnedPositions extends Positions {
  constructor(config, weights) {
    super();
    this.weight = weights.weight;
  }

  forward(x, positions) {
    return add(x, positions.map((position) => this.weight[position]));
  }
}

class SinusoidalPositions extends Positions {
  constructor(config) {
    super();
    this.code = (position) => sinusoidal(
      position, config.d_model, config.position_layout, config.rope_base);
  }

  forward(x, positions) {
    return add(x, positions.map(this.code));
  }
}

class Rotary extends Positions {
  constructor(config) {
    super();
    const size = config.d_head ?? config.d_model / config.n_heads;
    this.frequencies = frequencies(size, config.rope_base);
    this.layout = config.position_layout;
  }

  /** A function from the rows of all heads to the same rows, turned. */
  rotation(positions) {
    return (heads) => heads.map((head) => head.map((row, t) => rotatePairs(
      row, this.frequencies.map((f) => f * positions[t]), this.layout)));
  }
}

class Alibi extends Positions {
  constructor(config) {
    super();
    this.slopes = alibiSlopes(config.n_heads);
  }

  /** Minus slope times distance; queries are the last T of S. */
  bias(nQueries, nKeys) {
    const first = nKeys - nQueries;
    return (h, t, s) => -this.slopes[h] * Math.abs(first + t - s);
  }
}

/** Build the scheme that the configuration names. */
export function makePositions(config, weights) {
  const schemes = {
    learned: LearnedPositions,
    sinusoidal: SinusoidalPositions,
    rope: Rotary,
    alibi: Alibi,
    none: Positions,
  };
  return new schemes[config.positions](config, weights);
}
