// What a model costs: coursekit/scaling.py, for a GPT's configuration.

/** The sizes that a configuration leaves open. */
function sizes(config) {
  const heads = config.n_heads, groups = config.n_kv_heads ?? heads;
  const key = config.d_head ?? Math.floor(config.d_model / heads);
  const value = config.d_value ?? key;
  const inner = config.d_ff ?? 4 * config.d_model;
  const matrices = config.activation === "swiglu" ? 3 : 2;
  return { heads, groups, key, value, inner, matrices };
}

/** Parameters by part; what is shared counts once. */
export function countParameters(config) {
  const { vocab_size: vocab, d_model: width, n_layers: blocks, bias } = config;
  const { heads, groups, key, value, inner, matrices } = sizes(config);
  const withBias = config.attention_bias ?? bias;
  const projected = heads * key + groups * (key + value); // q, k, v
  const attention = width * (projected + heads * value)
    + (withBias ? projected + width : 0);
  const network = inner && matrices * width * inner
    + (bias ? (matrices - 1) * inner + width : 0);
  const gains = { none: 0, rmsnorm: width };
  const norm = gains[config.norm] ?? width * (bias ? 2 : 1);
  const norms = blocks * (inner ? 2 : 1) + (config.final_norm ? 1 : 0);
  return {
    tokens: vocab * width,
    positions: config.positions === "learned" ? config.max_len * width : 0,
    attention: blocks * attention,
    network: blocks * network,
    norms: norms * norm,
    head: config.tie_embeddings ? 0 : vocab * width,
  };
}

/** FLOPs of a forward pass over a text, by part. */
export function forwardFlops(config, length) {
  const { heads, groups, key, value, inner, matrices } = sizes(config);
  const each = (heads + groups) * (key + value);
  const blocks = 2 * length * config.n_layers;
  return {
    projections: blocks * config.d_model * each,
    scores: blocks * length * heads * (key + value),
    network: blocks * config.d_model * matrices * inner,
    head: 2 * length * config.d_model * config.vocab_size,
  };
}

/** Bytes of the keys and values of one text. */
export function cacheBytes(config, length, bytesPerNumber) {
  const { groups, key, value } = sizes(config);
  return config.n_layers * groups * length * (key + value) * bytesPerNumber;
}
