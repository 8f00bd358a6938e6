// The one product that training is made of, on flat arrays: row i of an
// (m, k) matrix begins at i · k. Sums are formed in float64, as JavaScript
// counts, and kept in float32.

/** C = A Bᵀ, or C += A Bᵀ: A is (m, k), B is (n, k), C is (m, n).
 *
 *  Both are read along their rows, which lie in one piece. Blocks of 4 rows of
 *  A and 2 of B share what they read: 8 sums, none of which waits for another. */
export function product(C, A, B, m, n, k, add = false) {
  if (!add) C.fill(0, 0, m * n);
  const rows = m - m % 4, columns = n - n % 2;
  for (let i = 0; i < rows; i += 4) {
    const a0 = i * k, a1 = a0 + k, a2 = a1 + k, a3 = a2 + k;
    for (let j = 0; j < columns; j += 2) {
      const b0 = j * k, b1 = b0 + k;
      let c00 = 0, c01 = 0, c10 = 0, c11 = 0;
      let c20 = 0, c21 = 0, c30 = 0, c31 = 0;
      for (let p = 0; p < k; p++) {
        const x = B[b0 + p], y = B[b1 + p];
        let a = A[a0 + p];
        c00 += a * x;
        c01 += a * y;
        a = A[a1 + p];
        c10 += a * x;
        c11 += a * y;
        a = A[a2 + p];
        c20 += a * x;
        c21 += a * y;
        a = A[a3 + p];
        c30 += a * x;
        c31 += a * y;
      }
      let c = i * n + j;
      C[c] += c00;
      C[c + 1] += c01;
      C[c += n] += c10;
      C[c + 1] += c11;
      C[c += n] += c20;
      C[c + 1] += c21;
      C[c += n] += c30;
      C[c + 1] += c31;
    }
  }
  // What is left: the last rows of A, and of the others the last row of B.
  for (let i = 0; i < m; i++)
    for (let j = i < rows ? columns : 0; j < n; j++) {
      let sum = 0;
      for (let p = 0; p < k; p++) sum += A[i * k + p] * B[j * k + p];
      C[i * n + j] += sum;
    }
}

/** Aᵀ of an (m, n) matrix, in an array that the next call writes over. */
export function flipped(A, m, n, spare) {
  if (!spare[0] || spare[0].length < m * n)
    spare[0] = new A.constructor(m * n);
  const [B] = spare;
  for (let i = 0; i < m; i++)
    for (let j = 0; j < n; j++) B[j * m + i] = A[i * n + j];
  return B;
}
