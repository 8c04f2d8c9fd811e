// Metrics of answers, defined as in `peltier compare` and `peltier evaluate`.

export type Metrics = Readonly<Record<string, number>>;
/** The metrics of each label. */
export type Classes = Readonly<Record<string, Metrics>>;

/** Accuracy, macro F1 and Matthews correlation. With two `names` also the F1 of the second. */
export function classify(gold: readonly string[], found: readonly string[], names: readonly string[]) {
  const classes: Record<string, Metrics> = {};
  for (const label of new Set([...gold, ...found])) {
    classes[label] = ofLabel(
      gold.map((own) => own === label),
      found.map((own) => own === label),
    );
  }
  const metrics: Record<string, number> = {
    accuracy: mean(gold.map((own, row) => Number(own === found[row]))),
    f1_macro: macroF1(classes),
    matthews: matthews(gold, found),
  };
  if (names.length === 2) metrics.f1 = classes[names[1] ?? ""]?.f1 ?? 0;
  return { metrics, classes };
}

/** Micro and macro F1 of sets of labels, and the share of rows that match exactly. */
export function chooseSeveral(
  gold: readonly ReadonlySet<string>[],
  found: readonly ReadonlySet<string>[],
  names: readonly string[],
) {
  const classes: Record<string, Metrics> = {};
  for (const label of new Set([...names, ...[...gold, ...found].flatMap((own) => [...own])])) {
    classes[label] = ofLabel(
      gold.map((own) => own.has(label)),
      found.map((own) => own.has(label)),
    );
  }
  const shared = sum(gold.map((own, row) => [...own].filter((label) => found[row]?.has(label)).length));
  const named = sum([...gold, ...found].map((own) => own.size));
  const metrics = {
    f1_micro: named ? (2 * shared) / named : 0,
    f1_macro: macroF1(classes),
    exact_match: mean(gold.map((own, row) => Number(sameSet(own, found[row] ?? new Set())))),
  };
  return { metrics, classes };
}

/** Pearson and Spearman correlation, 0 with a constant, and the mean squared error. */
export function regress(gold: readonly number[], found: readonly number[]): Metrics {
  return {
    pearson: correlation(gold, found),
    spearman: correlation(ranks(gold), ranks(found)),
    mse: mean(gold.map((own, row) => (own - (found[row] ?? 0)) ** 2)),
  };
}

export function mean(values: readonly number[]): number {
  return values.length ? sum(values) / values.length : 0;
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

export function sameSet(one: ReadonlySet<unknown>, other: ReadonlySet<unknown>): boolean {
  return one.size === other.size && [...one].every((value) => other.has(value));
}

function ofLabel(wanted: readonly boolean[], found: readonly boolean[]): Metrics {
  const right = wanted.filter((own, row) => own && found[row]).length;
  const numWanted = wanted.filter(Boolean).length;
  const numFound = found.filter(Boolean).length;
  return {
    precision: numFound ? right / numFound : 0,
    recall: numWanted ? right / numWanted : 0,
    f1: numWanted + numFound ? (2 * right) / (numWanted + numFound) : 0,
    support: numWanted,
  };
}

function macroF1(classes: Classes): number {
  return mean(Object.values(classes).map((own) => own.f1 ?? 0));
}

function matthews(gold: readonly string[], found: readonly string[]): number {
  const total = gold.length;
  const [wanted, answered] = [counts(gold), counts(found)];
  const right = gold.filter((own, row) => own === found[row]).length;
  const chance = sum([...wanted].map(([label, count]) => count * (answered.get(label) ?? 0)));
  const spread = [wanted, answered].map((own) => total ** 2 - sum([...own.values()].map((count) => count ** 2)));
  return spread.every(Boolean) ? (right * total - chance) / Math.sqrt((spread[0] ?? 0) * (spread[1] ?? 0)) : 0;
}

function counts(labels: readonly string[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const label of labels) found.set(label, (found.get(label) ?? 0) + 1);
  return found;
}

function correlation(first: readonly number[], second: readonly number[]): number {
  const [a, b] = [first, second].map((values) => {
    const middle = mean(values);
    return values.map((value) => value - middle);
  }) as [number[], number[]];
  const norm = Math.sqrt(sum(a.map((x) => x * x))) * Math.sqrt(sum(b.map((x) => x * x)));
  const isConstant = new Set(first).size < 2 || new Set(second).size < 2;
  return isConstant || !norm ? 0 : sum(a.map((x, row) => x * (b[row] ?? 0))) / norm;
}

/** From 1; equal values share the mean of their ranks. */
function ranks(values: readonly number[]): number[] {
  const positions = new Map<number, number[]>();
  [...values]
    .sort((a, b) => a - b)
    .forEach((value, place) => {
      const shared = positions.get(value);
      if (shared) shared.push(place + 1);
      else positions.set(value, [place + 1]);
    });
  return values.map((value) => mean(positions.get(value) ?? []));
}
