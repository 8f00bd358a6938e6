// A trained model as one file that coursekit.load reads: what
// coursekit/saved_models.py writes to a folder, in a zip that is not compressed.

/** The bytes of a safetensors file of {name: {shape, data}}, all float32, with
 *  the checksum of coursekit/weights.py. */
export function writeTensors(tensors) {
  let end = 0;
  const entries = Object.entries(tensors).map(([name, { shape, data }]) =>
    [name, { dtype: "F32", shape, bytes: littleEndian(data),
      data_offsets: [end, end += 4 * data.length] }]);
  const hashed = [utf8Bytes("{}")]; // nothing else is noted
  for (const [name, { shape, bytes }] of entries.toSorted(([a], [b]) => (a < b ? -1 : 1)))
    hashed.push(utf8Bytes(
      `${name} torch.float32 torch.Size([${shape.join(", ")}])`), bytes);
  const about = JSON.stringify({ sha256: sha256(joined(hashed)), about: {} });
  const head = JSON.stringify({ __metadata__: { coursekit: about },
    ...Object.fromEntries(entries.map(([name, { bytes, ...entry }]) => [name, entry])) });
  // Tensors begin at a multiple of eight bytes.
  const text = utf8Bytes(head.padEnd(8 * Math.ceil(head.length / 8)));
  return joined([record([text.length, 4], [0, 4]), text,
    ...entries.map(([, { bytes }]) => bytes)]);
}

function utf8Bytes(text) {
  return new TextEncoder().encode(text);
}

/** Numbers as bytes, the low one first on every machine. */
function littleEndian(data) {
  const bytes = new Uint8Array(4 * data.length), view = new DataView(bytes.buffer);
  data.forEach((value, i) => view.setFloat32(4 * i, value, true));
  return bytes;
}

/** SHA-256 (FIPS 180-4) in hexadecimal digits. The browser's own is not there on
 *  pages that come by plain http. */
export function sha256(bytes) {
  // The first 32 bits of the fractions of roots: cube roots of the first 64
  // primes, square roots of the first eight.
  const primes = [];
  for (let n = 2; primes.length < 64; n++)
    if (primes.every((p) => n % p)) primes.push(n);
  const bits = (root) => Math.floor((root % 1) * 2 ** 32);
  const K = primes.map((p) => bits(Math.cbrt(p)));
  const state = Uint32Array.from(primes.slice(0, 8), (p) => bits(Math.sqrt(p)));
  // A one, zeros, and the length in bits, up to a multiple of 64 bytes.
  const blocks = Math.ceil((bytes.length + 9) / 64);
  const padded = new Uint8Array(64 * blocks), view = new DataView(padded.buffer);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  view.setBigUint64(64 * blocks - 8, BigInt(8 * bytes.length));
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  const w = new Uint32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2];
      w[i] = w[i - 16] + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3))
        + w[i - 7] + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((x, i) => { state[i] += x; });
  }
  return Array.from(state, (x) => x.toString(16).padStart(8, "0")).join("");
}

/** A zip of {name: bytes}: each file behind its header, then their list. */
export function zip(files) {
  const parts = [], list = [];
  let at = 0;
  for (const [name, bytes] of Object.entries(files)) {
    const path = utf8Bytes(name);
    // Version 2.0, no flags, stored; 1 January 1980; the name, no more fields.
    const about = [[20, 2], [0, 2], [0, 2], [0, 2], [33, 2], [crc32(bytes), 4],
      [bytes.length, 4], [bytes.length, 4], [path.length, 2], [0, 2]];
    const header = record([0x04034b50, 4], ...about);
    list.push(record([0x02014b50, 4], [20, 2], ...about,
      [0, 2], [0, 2], [0, 2], [0, 4], [at, 4]), path);
    parts.push(header, path, bytes);
    at += header.length + path.length + bytes.length;
  }
  const n = list.length / 2, size = list.reduce((sum, x) => sum + x.length, 0);
  const end = record([0x06054b50, 4], [0, 2], [0, 2], [n, 2], [n, 2],
    [size, 4], [at, 4], [0, 2]);
  return joined([...parts, ...list, end]);
}

/** Whole numbers one after the other: [value, how many bytes], low byte first. */
function record(...fields) {
  return Uint8Array.from(fields.flatMap(([value, size]) =>
    Array.from({ length: size }, (_, i) => (value >>> (8 * i)) & 255)));
}

function joined(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The check sum of zip files: the remainder by a polynomial over bits. */
function crc32(bytes) {
  let sum = -1;
  for (const byte of bytes) {
    sum ^= byte;
    for (let i = 0; i < 8; i++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}
