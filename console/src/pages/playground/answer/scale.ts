/** The shares of `value` and of nothing that a bar has, for probabilities and, with `raw_scores`, for logits. */
export function barShare(value: number, all: readonly number[]): number {
  const [least, most] = [Math.min(0, ...all), Math.max(1e-12, ...all)];
  const isProbability = least >= 0 && most <= 1;
  return isProbability ? value : (value - least) / (most - least);
}
