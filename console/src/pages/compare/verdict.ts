// What a comparison says, in sentences.
import { type Comparison, MAIN_METRIC, MAX_P_VALUE } from "@/quality/comparison";
import type { Kind } from "@/quality/judge";
import { counted } from "@/widgets/format/numbers";

export interface Verdict {
  who: string;
  where: string;
  chance: string;
}

export function verdictOf(kind: Kind, found: Comparison, first: string, second: string): Verdict {
  const metric = MAIN_METRIC[kind];
  const values = new Map([
    [first, found.first.metrics[metric] ?? 0],
    [second, found.second.metrics[metric] ?? 0],
  ]);
  const value = (task: string) => (values.get(task) ?? 0).toFixed(4);
  const other = found.better === first ? second : first;
  const who =
    found.better === null
      ? `Neither is better: ${metric} ${value(first)} of both.`
      : `${found.better} is better: ${metric} ${value(found.better)} against ${value(other)}.`;
  const what = kind === "regression" ? "nearer" : kind === "ranking" ? "better" : "right";
  const unit = kind === "ranking" ? " queries" : "";
  const where =
    `They answer ${counted(found.differing.length, "row")} differently; only ${first} is ${what} on ${found.onlyFirstRight}${unit}, ` +
    `only ${second} on ${found.onlySecondRight}${unit}.`;
  const test = kind === "regression" || kind === "ranking" ? "a sign test" : "McNemar’s exact test";
  const chance = found.pValue < MAX_P_VALUE ? "unlikely to be chance" : "it may well be chance";
  return { who, where, chance: `By ${test} p = ${found.pValue.toPrecision(2)}: ${chance}.` };
}
