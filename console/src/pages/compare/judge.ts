// Judges answers of both versions by the server.
import { type Comparison, compareAnswers } from "@/api/comparisons";
import type { Task } from "@/api/tasks";
import { textsOf } from "@/rows/input";
import { kindOfBoth } from "./answers";
import type { Asked, Case, Problem } from "./askBoth";

// Of the labels of one cell. Cells may also have JSON lists.
const SEPARATOR = "|";

/** What the server says of the rows that both versions have answered so far. */
export interface Judged {
  comparison: Comparison;
  /** The rows of the request, and those of them whose labels could be read, with their answers. */
  asked: readonly Case[];
  cases: readonly Case[];
  problems: readonly Problem[];
}

/** There is at least one case. */
export async function judge(
  [first, second]: readonly [Task, Task],
  { cases }: Asked,
  signal: AbortSignal,
): Promise<Judged> {
  const kind = kindOfBoth(first, second);
  const needsTexts = kind === "ranking" || kind === "token-classification";
  const side = (task: Task, place: 0 | 1) => ({
    task: task.reference,
    names: [...task.labels],
    answers: cases.map((one) => one.answers[place]),
  });
  const body = {
    task_type: kind,
    // A cell that is absent is a problem of its row.
    labels: cases.map((one) => one.label ?? null),
    ...(needsTexts && { texts: cases.map((one) => textsOf(one.input)[0] ?? "") }),
    separator: SEPARATOR,
    first: side(first, 0),
    second: side(second, 1),
  };
  const comparison = await compareAnswers(body, signal);
  const unread = new Set(comparison.problems.map((one) => one.row));
  return {
    comparison,
    asked: cases,
    cases: cases.filter((_, row) => !unread.has(row)),
    problems: comparison.problems.map(({ row, problem }) => ({ line: cases[row]?.line ?? 0, problem })),
  };
}
