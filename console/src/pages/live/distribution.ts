// Counts of values in buckets, as the server's histograms have them.
import type { Schema } from "@/api/server";

export type Distribution = Schema<"Distribution">;

/** The values that came between two snapshots of the same distribution. */
export function since(before: Distribution, after: Distribution): Distribution {
  return {
    bounds: after.bounds,
    counts: after.counts.map((count, place) => count - (before.counts[place] ?? 0)),
    total: after.total - before.total,
  };
}

export function countOf({ counts }: Distribution): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Null where there are no values. */
export function meanOf(values: Distribution): number | null {
  const count = countOf(values);
  return count > 0 ? values.total / count : null;
}

/** The value that the share `q` of all values does not exceed, linear within its bucket; null where there are none.
    Above all bounds it is the last bound. */
export function quantileOf(values: Distribution, q: number): number | null {
  const count = countOf(values);
  if (count <= 0) return null;
  let below = 0;
  for (const [place, bound] of values.bounds.entries()) {
    const inside = values.counts[place] ?? 0;
    if (below + inside >= q * count && inside > 0) {
      const low = values.bounds[place - 1] ?? 0;
      return low + ((bound - low) * (q * count - below)) / inside;
    }
    below += inside;
  }
  return values.bounds.at(-1) ?? null;
}
