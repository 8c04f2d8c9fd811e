// Two versions on the same labelled rows: metrics, rows that differ and a significance test.

import { readLabel, readLabels } from "./gold";
import { type Answer, type Case, checkLabel, type Judged, judge, type Kind } from "./judge";
import { signTest } from "./signTest";

/** The metric that decides which is better; a lower mean squared error is better. */
export const MAIN_METRIC: Readonly<Record<Kind, string>> = {
  classification: "accuracy",
  multilabel: "f1_micro",
  regression: "mse",
  text2text: "exact_match",
  ranking: "mrr",
  "token-classification": "f1",
  span: "exact_match",
};
/** Of a difference that is unlikely to be chance. */
export const MAX_P_VALUE = 0.05;

export interface Side {
  /** The task reference. */
  task: string;
  names: readonly string[];
  /** One for each case. */
  answers: readonly Answer[];
}

export interface Comparison {
  first: Judged;
  second: Judged;
  /** The better task reference; null if the main metrics are equal. */
  better: string | null;
  /** Positions of the cases that are answered differently. */
  differing: readonly number[];
  onlyFirstRight: number;
  onlySecondRight: number;
  pValue: number;
}

/** Throws an error if the label of `one` cannot be read, or reads differently for the two versions. */
export function checkCase(kind: Kind, one: Case, first: readonly string[], second: readonly string[]): void {
  const known = new Set([...first, ...second]);
  checkLabel(kind, one.label, first, known);
  checkLabel(kind, one.label, second, known);
  if (kind !== "classification" && kind !== "multilabel") return;
  const read =
    kind === "classification"
      ? readLabel
      : (cell: unknown, names: readonly string[]) => [...readLabels(cell, names)].sort().join("|");
  if (read(one.label, first) !== read(one.label, second)) {
    throw new Error(`label ${JSON.stringify(one.label)} is not the same label in both; write names for integers`);
  }
}

/** Every case has passed `checkCase`. */
export function compare(kind: Kind, cases: readonly Case[], first: Side, second: Side): Comparison {
  const [one, other] = [first, second].map((side) => judge(kind, cases, side.answers, side.names)) as [Judged, Judged];
  const onlyFirstRight = one.errors.filter((error, row) => error < (other.errors[row] ?? 0)).length;
  const onlySecondRight = one.errors.filter((error, row) => error > (other.errors[row] ?? 0)).length;
  return {
    first: one,
    second: other,
    better: betterOf(kind, [first.task, one], [second.task, other]),
    differing: [...cases.keys()].filter((row) => one.shown[row] !== other.shown[row]),
    onlyFirstRight,
    onlySecondRight,
    pValue: signTest(onlyFirstRight, onlySecondRight),
  };
}

function betterOf(kind: Kind, first: [string, Judged], second: [string, Judged]): string | null {
  const metric = MAIN_METRIC[kind];
  const [a, b] = [first[1].metrics[metric] ?? 0, second[1].metrics[metric] ?? 0];
  if (a === b) return null;
  return a > b === (kind !== "regression") ? first[0] : second[0];
}
