// Judges the answers of one version by the labels of their rows.
import type { Input } from "@/rows/input";
import { textsOf } from "@/rows/input";
import { type Span, scoreEntities, showEntities, spanKey } from "./entities";
import { readAnswers, readEntities, readLabel, readLabels, readNumber, readText } from "./gold";
import { type Classes, chooseSeveral, classify, type Metrics, mean, regress, sameSet } from "./metrics";
import { gain, reciprocalRank } from "./ranking";
import { scoreSpan } from "./spans";

export const KINDS = [
  "classification",
  "multilabel",
  "regression",
  "text2text",
  "ranking",
  "token-classification",
  "span",
] as const;
export type Kind = (typeof KINDS)[number];

/** What a prediction of any kind may have. */
export interface Answer {
  label?: string;
  labels?: readonly string[];
  value?: number;
  score?: number;
  text?: string;
  answer?: string;
  entities?: readonly Span[];
}

export interface Case {
  line: number;
  input: Input;
  /** The cell as the table has it. */
  label: unknown;
}

export interface Judged {
  metrics: Metrics;
  classes: Classes;
  /** The right answer, the given one and the error of each row. */
  gold: readonly string[];
  shown: readonly string[];
  errors: readonly number[];
}

/** Throws an error if `cell` is no label for this kind of task. */
export function checkLabel(kind: Kind, cell: unknown, names: readonly string[], known: ReadonlySet<string>): void {
  const given: Iterable<string> =
    kind === "classification" ? [readLabel(cell, names)] : kind === "multilabel" ? readLabels(cell, names) : [];
  for (const label of given) {
    if (known.size && !known.has(label)) {
      throw new Error(`label ${JSON.stringify(label)} is not one of the ${known.size} labels of either version`);
    }
  }
  if (kind === "regression" || kind === "ranking") readNumber(cell);
  if (kind === "text2text") readText(cell);
  if (kind === "token-classification") readEntities(cell);
  if (kind === "span") readAnswers(cell);
}

/** The labels of `cases` have passed `checkLabel`. */
export function judge(
  kind: Kind,
  cases: readonly Case[],
  answers: readonly Answer[],
  names: readonly string[],
): Judged {
  return JUDGES[kind](cases, answers, names);
}

type Judge = (cases: readonly Case[], answers: readonly Answer[], names: readonly string[]) => Judged;

const JUDGES: Record<Kind, Judge> = {
  classification: (cases, answers, names) => {
    const gold = cases.map((one) => readLabel(one.label, names));
    const shown = answers.map((one) => one.label ?? "");
    return { ...classify(gold, shown, names), gold, shown, errors: wrong(gold, shown) };
  },
  multilabel: (cases, answers, names) => {
    const gold = cases.map((one) => readLabels(one.label, names));
    const found = answers.map((one) => new Set(one.labels));
    const errors = gold.map((own, row) => Number(!sameSet(own, found[row] ?? new Set())));
    return { ...chooseSeveral(gold, found, names), gold: gold.map(listed), shown: found.map(listed), errors };
  },
  regression: (cases, answers) => {
    const gold = cases.map((one) => readNumber(one.label));
    const found = answers.map((one) => one.value ?? 0);
    const errors = gold.map((own, row) => Math.abs(own - (found[row] ?? 0)));
    return { metrics: regress(gold, found), classes: {}, gold: gold.map(String), shown: found.map(String), errors };
  },
  text2text: (cases, answers) => {
    const gold = cases.map((one) => readText(one.label));
    const shown = answers.map((one) => (one.text ?? "").trim());
    const errors = wrong(gold, shown);
    return { metrics: { exact_match: 1 - mean(errors) }, classes: {}, gold, shown, errors };
  },
  ranking: judgeRanking,
  "token-classification": judgeEntities,
  span: judgeSpans,
};

/** The means over queries with a relevant document. The first row of a query has the error of all its rows. */
function judgeRanking(cases: readonly Case[], answers: readonly Answer[]): Judged {
  const relevance = cases.map((one) => readNumber(one.label));
  const scores = answers.map((one) => one.score ?? 0);
  const queries = rowsByQuery(cases);
  const errors = cases.map(() => 0);
  const [ranks, gains]: [number[], number[]] = [[], []];
  for (const rows of queries.values()) {
    const grades = rows.map((row) => relevance[row] ?? 0);
    if (!(Math.max(...grades) > 0)) continue;
    const own = rows.map((row) => scores[row] ?? 0);
    ranks.push(reciprocalRank(grades, own));
    gains.push(gain(grades, own));
    errors[rows[0] ?? 0] = 1 - (ranks.at(-1) ?? 0);
  }
  const metrics = { mrr: mean(ranks), "ndcg@10": mean(gains) };
  return { metrics, classes: {}, gold: relevance.map(String), shown: scores.map(String), errors };
}

function rowsByQuery(cases: readonly Case[]): Map<string, number[]> {
  const queries = new Map<string, number[]>();
  cases.forEach((one, row) => {
    const query = textsOf(one.input)[0] ?? "";
    const rows = queries.get(query);
    if (rows) rows.push(row);
    else queries.set(query, [row]);
  });
  return queries;
}

/** A row is right if all its entities are. */
function judgeEntities(cases: readonly Case[], answers: readonly Answer[]): Judged {
  const gold = cases.map((one) => readEntities(one.label));
  const found = answers.map((one) => one.entities ?? []);
  const keys = (spans: readonly Span[] | undefined) => new Set(spans?.map(spanKey));
  const errors = gold.map((own, row) => Number(!sameSet(keys(own), keys(found[row]))));
  const show = (rows: readonly (readonly Span[])[]) =>
    rows.map((spans, row) => showEntities(textsOf(cases[row]?.input ?? "")[0] ?? "", spans).join(", ") || "none");
  return { ...scoreEntities(gold, found), gold: show(gold), shown: show(found), errors };
}

function judgeSpans(cases: readonly Case[], answers: readonly Answer[]): Judged {
  const gold = cases.map((one) => readAnswers(one.label));
  const scores = answers.map((one, row) => scoreSpan(one.answer ?? "", gold[row] ?? []));
  return {
    metrics: { exact_match: mean(scores.map((one) => one.exact)), f1: mean(scores.map((one) => one.f1)) },
    classes: {},
    gold: gold.map((texts) => texts.join(" or ") || "no answer"),
    shown: answers.map((one) => one.answer || "no answer"),
    errors: scores.map((one) => 1 - one.exact),
  };
}

function wrong(gold: readonly string[], found: readonly string[]): number[] {
  return gold.map((own, row) => Number(own !== found[row]));
}

function listed(labels: ReadonlySet<string>): string {
  return [...labels].sort().join(", ") || "none";
}
