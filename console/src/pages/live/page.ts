// A page of Prometheus' text format, as GET /metrics answers it.

export interface Sample {
  labels: Readonly<Record<string, string>>;
  value: number;
}

/** The samples of a page by name. A page of several replicas has the label `replica`. */
export type Page = ReadonlyMap<string, readonly Sample[]>;
/** What a sample counts for; undefined leaves it out. */
type NameOf = (labels: Sample["labels"]) => string | undefined;

/** Values of a histogram: `counts[i]` at most `bounds[i]`, the last count above all bounds. */
export interface Distribution {
  bounds: readonly number[];
  counts: readonly number[];
  total: number;
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/gm;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const ALL = () => "all";

export function parsePage(text: string): Page {
  const page = new Map<string, Sample[]>();
  for (const [, name = "", labels = "", value] of text.matchAll(SAMPLE)) {
    const own = Object.fromEntries(Array.from(labels.matchAll(LABEL), ([, label, content]) => [label, content]));
    const samples = page.get(name) ?? [];
    samples.push({ labels: own, value: numberOf(value) });
    page.set(name, samples);
  }
  return page;
}

/** The sum of the samples of a name. */
export function totalOf(page: Page, name: string): number {
  return (page.get(name) ?? []).reduce((all, { value }) => all + value, 0);
}

/** The sums of the samples of a name, by what they count for. */
export function totalsBy(page: Page, name: string, nameOf: NameOf): ReadonlyMap<string, number> {
  const totals = new Map<string, number>();
  for (const { labels, value } of page.get(name) ?? []) {
    const own = nameOf(labels);
    if (own !== undefined) totals.set(own, (totals.get(own) ?? 0) + value);
  }
  return totals;
}

/** A histogram by name; without values if the page has none. */
export function distributionOf(page: Page, name: string): Distribution {
  return distributionsBy(page, name, ALL).get("all") ?? { bounds: [], counts: [0], total: 0 };
}

/** The histograms of a name, by what they count for. */
export function distributionsBy(page: Page, name: string, nameOf: NameOf): ReadonlyMap<string, Distribution> {
  const totals = totalsBy(page, `${name}_sum`, nameOf);
  const buckets = new Map<string, Map<number, number>>();
  for (const { labels, value } of page.get(`${name}_bucket`) ?? []) {
    const own = nameOf(labels);
    if (own === undefined) continue;
    const bound = numberOf(labels.le);
    const upTo = buckets.get(own) ?? new Map<number, number>();
    buckets.set(own, upTo.set(bound, (upTo.get(bound) ?? 0) + value));
  }
  return new Map(Array.from(buckets, ([own, upTo]) => [own, distribution(upTo, totals.get(own) ?? 0)]));
}

/** What was added to every counter and histogram. One that is smaller than before began again at 0. */
export function since(before: Page, after: Page): Page {
  const old = new Map(entries(before).map(([name, sample]) => [keyOf(name, sample), sample.value]));
  const past = ([name, sample]: Entry) => old.get(keyOf(name, sample)) ?? 0;
  const again = new Set(
    entries(after).flatMap((entry) => (entry[1].value < past(entry) ? [seriesOf(entry[0], entry[1])] : [])),
  );
  const added = (name: string, sample: Sample) =>
    sample.value - (again.has(seriesOf(name, sample)) ? 0 : past([name, sample]));
  return new Map(
    Array.from(after, ([name, samples]) => [
      name,
      samples.map((sample) => ({ labels: sample.labels, value: added(name, sample) })),
    ]),
  );
}

/** The mean of all values; null where there are none. */
export function meanOf(values: Distribution): number | null {
  const count = countOf(values);
  return count > 0 ? values.total / count : null;
}

export function countOf({ counts }: Distribution): number {
  return counts.reduce((sum, count) => sum + count, 0);
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

type Entry = [name: string, sample: Sample];

function entries(page: Page): Entry[] {
  return Array.from(page).flatMap(([name, samples]) => samples.map((sample): Entry => [name, sample]));
}

function keyOf(name: string, { labels }: Sample): string {
  return JSON.stringify([name, labels]);
}

/** What the samples of one histogram have in common. */
function seriesOf(name: string, { labels }: Sample): string {
  return JSON.stringify([name.replace(/_(bucket|sum|count)$/, ""), { ...labels, le: undefined }]);
}

/** From the number of values up to each bound, of which the last is infinite. */
function distribution(upTo: ReadonlyMap<number, number>, total: number): Distribution {
  const sorted = Array.from(upTo).sort(([one], [other]) => one - other);
  return {
    bounds: sorted.slice(0, -1).map(([bound]) => bound),
    counts: sorted.map(([, count], place) => count - (sorted[place - 1]?.[1] ?? 0)),
    total,
  };
}

function numberOf(text: string | undefined): number {
  return text === "+Inf" ? Number.POSITIVE_INFINITY : Number(text);
}
