// Metrics of the documents of one query.
import { sum } from "./metrics";

const MAX_RANK = 10;

/** That of the first relevant document; of equal scores the relevant documents count as the last. */
export function reciprocalRank(relevance: readonly number[], scores: readonly number[]): number {
  const best = Math.max(...scores.filter((_, place) => (relevance[place] ?? 0) > 0));
  const before = scores.filter((score, place) => score > best || (score === best && !((relevance[place] ?? 0) > 0)));
  return 1 / (before.length + 1);
}

/** The normalised discounted cumulative gain of the first ten documents. Equal scores share their gain. */
export function gain(relevance: readonly number[], scores: readonly number[]): number {
  return discounted(relevance, scores) / discounted(relevance, relevance);
}

function discounted(relevance: readonly number[], scores: readonly number[]): number {
  const order = scores.map((score, place) => ({ score, grade: relevance[place] ?? 0 }));
  order.sort((a, b) => b.score - a.score);
  let total = 0;
  for (let rank = 0; rank < order.length; ) {
    const run = order.filter((one) => one.score === order[rank]?.score);
    const discounts = run.map((_, own) => (rank + own < MAX_RANK ? 1 / Math.log2(rank + own + 2) : 0));
    total += (sum(run.map((one) => one.grade)) / run.length) * sum(discounts);
    rank += run.length;
  }
  return total;
}
