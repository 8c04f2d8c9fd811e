// Metrics of whole entities.
import { type Classes, type Metrics, sum } from "./metrics";

/** Characters from `start` up to `end`, counted as Python does: in code points. */
export interface Span {
  start: number;
  end: number;
  label: string;
}

/** F1, precision and recall over all rows, and those of each label. */
export function scoreEntities(gold: readonly (readonly Span[])[], found: readonly (readonly Span[])[]) {
  const { support: _, ...metrics } = score(gold, found);
  const classes: Record<string, Metrics> = {};
  for (const label of new Set([...gold, ...found].flat().map((span) => span.label))) {
    classes[label] = score(ofLabel(gold, label), ofLabel(found, label));
  }
  return { metrics: metrics as Metrics, classes: classes as Classes };
}

export function spanKey({ start, end, label }: Span): string {
  return `${start} ${end} ${label}`;
}

/** Each entity as its label and its text, in order. */
export function showEntities(text: string, spans: readonly Span[]): string[] {
  const characters = [...text];
  const inOrder = [...spans].sort((a, b) => a.start - b.start || a.end - b.end || (a.label < b.label ? -1 : 1));
  return inOrder.map(({ start, end, label }) => `${label}: ${characters.slice(start, end).join("")}`);
}

function ofLabel(rows: readonly (readonly Span[])[], label: string): Span[][] {
  return rows.map((spans) => spans.filter((span) => span.label === label));
}

function score(gold: readonly (readonly Span[])[], found: readonly (readonly Span[])[]) {
  const [wanted, given] = [gold, found].map((rows) => rows.map((spans) => new Set(spans.map(spanKey)))) as [
    Set<string>[],
    Set<string>[],
  ];
  const right = sum(wanted.map((own, row) => [...own].filter((key) => given[row]?.has(key)).length));
  const [numWanted, numGiven] = [wanted, given].map((rows) => sum(rows.map((own) => own.size))) as [number, number];
  return {
    f1: numWanted + numGiven ? (2 * right) / (numWanted + numGiven) : 0,
    precision: numGiven ? right / numGiven : 0,
    recall: numWanted ? right / numWanted : 0,
    support: numWanted,
  };
}
