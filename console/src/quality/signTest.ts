/**
 * The p-value of the exact two-sided sign test. For rows that only one side answers correctly, this is McNemar's exact
 * test.
 */
export function signTest(numFirst: number, numSecond: number): number {
  const total = numFirst + numSecond;
  let logTerm = -total * Math.log(2);
  let tail = 0;
  for (let k = 0; k <= Math.min(numFirst, numSecond); k++) {
    if (k > 0) logTerm += Math.log((total - k + 1) / k);
    tail += Math.exp(logTerm);
  }
  return Math.min(1, 2 * tail);
}
