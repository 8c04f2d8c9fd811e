/** The cosine of each pair of vectors; 0 with a vector without length. */
export function similarities(vectors: readonly (readonly number[])[]): number[][] {
  const units = vectors.map(unit);
  return units.map((one) => units.map((other) => dot(one, other)));
}

function unit(vector: readonly number[]): number[] {
  const length = Math.sqrt(dot(vector, vector));
  return vector.map((value) => (length ? value / length : 0));
}

function dot(one: readonly number[], other: readonly number[]): number {
  let total = 0;
  for (let place = 0; place < one.length; place++) total += (one[place] ?? 0) * (other[place] ?? 0);
  return total;
}
