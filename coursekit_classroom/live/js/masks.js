// Who may look at whom: coursekit/masks.py. True where a query may attend.

/** Let each position see itself and what lies before it: the queries are
 *  the last T of S positions, as when new tokens meet a cache of old keys. */
export function causalMask(nQueries, nKeys = nQueries) {
  return Array.from({ length: nQueries }, (_, t) =>
    Array.from({ length: nKeys }, (_, s) => s <= t + (nKeys - nQueries)));
}
