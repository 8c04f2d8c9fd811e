// Asks both versions about every row. A row without two answers has a problem and is not judged.
import type { Answer, Kind } from "@/api/comparisons";
import { type Answered, type Item, predictMixed, type Result } from "@/api/predictions";
import type { Task } from "@/api/tasks";
import { type Input, inputOf } from "@/rows/input";
import type { Row } from "@/rows/table";
import { answerOf, kindOfBoth } from "./answers";
import type { Columns } from "./columns";

export interface Problem {
  line: number;
  problem: string;
}

/** A row that is asked about. `label` is the cell as the table has it. */
interface Question {
  line: number;
  input: Input;
  label: unknown;
}

export interface Case extends Question {
  /** Those of the first and of the second version. */
  answers: readonly [Answer, Answer];
}

export interface Asked {
  /** The rows that both versions answered. */
  cases: readonly Case[];
  problems: readonly Problem[];
  /** Rows that have been asked about, with or without success. */
  done: number;
  total: number;
}

const ROWS_OF_A_REQUEST = 64;

/** Waits for `onProgress` after each request that is answered. Rejects if an alias moved, so that two versions answered for one side. */
export async function askBoth(
  [first, second]: readonly [Task, Task],
  rows: readonly Row[],
  columns: Columns,
  onProgress: (asked: Asked) => Promise<void>,
  signal: AbortSignal,
): Promise<Asked> {
  const kind = kindOfBoth(first, second);
  const { questions, problems } = readQuestions(rows, columns);
  let asked: Asked = { cases: [], problems, done: problems.length, total: rows.length };
  const versions = [new Set<number>(), new Set<number>()] as const;
  // The scores of other labels are not needed, and with many labels they are most of an answer.
  const parameters = kind === "classification" || kind === "multilabel" ? { top_k: 1 } : {};
  for (let from = 0; from < questions.length; from += ROWS_OF_A_REQUEST) {
    const part = questions.slice(from, from + ROWS_OF_A_REQUEST);
    const items = part.flatMap(({ input }): Item[] => [
      { task: first.reference, input },
      { task: second.reference, input },
    ]);
    const { results } = await predictMixed({ kind: "mixed", items, parameters }, signal);
    asked = withResults(kind, asked, part, results);
    for (const [side, task] of [first, second].entries()) {
      noteVersions(
        versions[side as 0 | 1],
        task,
        results.filter((_, place) => place % 2 === side),
      );
    }
    await onProgress(asked);
  }
  return asked;
}

function readQuestions(rows: readonly Row[], columns: Columns) {
  const questions: Question[] = [];
  const problems: Problem[] = [];
  for (const row of rows) {
    try {
      questions.push({ line: row.line, input: inputOf(row, columns.texts), label: row.cells[columns.label] });
    } catch (error) {
      problems.push({ line: row.line, problem: (error as Error).message });
    }
  }
  return { questions, problems };
}

function withResults(kind: Kind, asked: Asked, part: readonly Question[], results: readonly Result[]): Asked {
  const [cases, problems] = [[...asked.cases], [...asked.problems]];
  part.forEach((one, place) => {
    try {
      const answers = [answerIn(kind, results[2 * place]), answerIn(kind, results[2 * place + 1])] as const;
      cases.push({ ...one, answers });
    } catch (error) {
      problems.push({ line: one.line, problem: (error as Error).message });
    }
  });
  return { ...asked, cases, problems, done: asked.done + part.length };
}

function answerIn(kind: Kind, result: Result | undefined): Answer {
  if (result && "error" in result) throw new Error(`${result.error.message} (${result.error.code})`);
  const prediction = result?.predictions[0];
  if (!prediction) throw new Error("has no answer");
  return answerOf(kind, prediction);
}

function noteVersions(found: Set<number>, task: Task, results: readonly Result[]): void {
  for (const { adapter } of results.filter((result): result is Answered => "adapter" in result)) {
    found.add(adapter.version);
  }
  if (found.size > 1) {
    const name = `${task.reference.split("@")[0]}@${Math.max(...found)}`;
    throw new Error(
      `${task.reference} was answered by versions ${[...found].join(" and ")}; name one, such as ${name}.`,
    );
  }
}
