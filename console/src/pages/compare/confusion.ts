// How often each label was answered for each right label.

export interface Confusion {
  /** In the order of the task, then those that are not the task's. */
  labels: readonly string[];
  /** `counts[right][answered]` at the positions of `labels`. */
  counts: readonly (readonly number[])[];
}

/** The labels that occur in `gold` or in one of `answers`, so that matrices of two sides have the same axes. */
export function occurringLabels(
  gold: readonly string[],
  answers: readonly (readonly string[])[],
  names: readonly string[],
) {
  const occurring = new Set([...gold, ...answers.flat()]);
  const known = names.filter((name) => occurring.has(name));
  return [...known, ...[...occurring].filter((label) => !names.includes(label)).sort()];
}

export function confusionOf(labels: readonly string[], gold: readonly string[], found: readonly string[]): Confusion {
  const place = new Map(labels.map((label, index) => [label, index]));
  const counts = labels.map(() => labels.map(() => 0));
  gold.forEach((right, row) => {
    const line = counts[place.get(right) ?? -1];
    const column = place.get(found[row] ?? "");
    if (line && column !== undefined) line[column] = (line[column] ?? 0) + 1;
  });
  return { labels, counts };
}

/** The `count` labels that take part in most wrong answers, in the order of `labels`. */
export function confusedLabels(
  labels: readonly string[],
  gold: readonly string[],
  answers: readonly (readonly string[])[],
  count: number,
): string[] {
  const wrong = new Map(labels.map((label) => [label, 0]));
  for (const found of answers) {
    gold.forEach((right, row) => {
      const given = found[row] ?? "";
      if (given === right) return;
      for (const label of [right, given]) wrong.set(label, (wrong.get(label) ?? 0) + 1);
    });
  }
  const most = [...labels].sort((a, b) => (wrong.get(b) ?? 0) - (wrong.get(a) ?? 0)).slice(0, count);
  return labels.filter((label) => most.includes(label));
}
