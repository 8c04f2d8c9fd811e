// Asks both versions about every row. A row without two answers has a problem and is not judged.
import { type Answered, type Item, predictMixed, type Result } from "@/api/predictions";
import type { Task } from "@/api/tasks";
import { checkCase } from "@/quality/comparison";
import { type Answer, type Case, KINDS, type Kind } from "@/quality/judge";
import { inputOf } from "@/rows/input";
import type { Row } from "@/rows/table";
import type { Columns } from "./columns";

export interface Problem {
  line: number;
  problem: string;
}

export interface Asked {
  /** The rows with a label that both versions answered, and their answers. */
  cases: readonly Case[];
  first: readonly Answer[];
  second: readonly Answer[];
  problems: readonly Problem[];
  /** Rows that have been asked about, with or without success. */
  done: number;
  total: number;
}

const ROWS_OF_A_REQUEST = 64;

/** Throws an error if answers of the two tasks cannot be compared. */
export function kindOfBoth(first: Task, second: Task): Kind {
  const kind = KINDS.find((own) => own === first.type);
  if (first.type !== second.type) {
    throw new Error(
      `${first.reference} is a ${first.type} task and ${second.reference} a ${second.type} task: they cannot be compared.`,
    );
  }
  if (!kind) throw new Error(`${first.reference} answers ${first.type}s, which have no right answer.`);
  return kind;
}

/** Reports each request that is answered. Rejects if an alias moved, so that two versions answered for one side. */
export async function askBoth(
  [first, second]: readonly [Task, Task],
  rows: readonly Row[],
  columns: Columns,
  onProgress: (asked: Asked) => void,
  signal: AbortSignal,
): Promise<Asked> {
  const kind = kindOfBoth(first, second);
  const { cases, problems } = readCases(kind, rows, columns, [first, second]);
  let asked: Asked = { cases: [], first: [], second: [], problems, done: problems.length, total: rows.length };
  const versions = [new Set<number>(), new Set<number>()] as const;
  // The scores of other labels are not needed, and with many labels they are most of an answer.
  const parameters = kind === "classification" || kind === "multilabel" ? { top_k: 1 } : {};
  for (let from = 0; from < cases.length; from += ROWS_OF_A_REQUEST) {
    const part = cases.slice(from, from + ROWS_OF_A_REQUEST);
    const items = part.flatMap(({ input }): Item[] => [
      { task: first.reference, input },
      { task: second.reference, input },
    ]);
    const { results } = await predictMixed({ kind: "mixed", items, parameters }, signal);
    asked = withResults(asked, part, results);
    for (const [side, task] of [first, second].entries()) {
      noteVersions(
        versions[side as 0 | 1],
        task,
        results.filter((_, place) => place % 2 === side),
      );
    }
    onProgress(asked);
  }
  return asked;
}

function readCases(kind: Kind, rows: readonly Row[], columns: Columns, tasks: readonly [Task, Task]) {
  const cases: Case[] = [];
  const problems: Problem[] = [];
  for (const row of rows) {
    try {
      const own = { line: row.line, input: inputOf(row, columns.texts), label: row.cells[columns.label] };
      checkCase(kind, own, tasks[0].labels, tasks[1].labels);
      cases.push(own);
    } catch (error) {
      problems.push({ line: row.line, problem: (error as Error).message });
    }
  }
  return { cases, problems };
}

function withResults(asked: Asked, part: readonly Case[], results: readonly Result[]): Asked {
  const [cases, first, second, problems] = [[...asked.cases], [...asked.first], [...asked.second], [...asked.problems]];
  part.forEach((one, place) => {
    const pair = [results[2 * place], results[2 * place + 1]].map(predictionOf);
    const [own, other] = pair;
    if (own && other && !(own instanceof Error) && !(other instanceof Error)) {
      cases.push(one);
      first.push(own);
      second.push(other);
    } else {
      const error = pair.find((result) => result instanceof Error);
      problems.push({ line: one.line, problem: error?.message ?? "has no answer" });
    }
  });
  return { ...asked, cases, first, second, problems, done: asked.done + part.length };
}

function predictionOf(result: Result | undefined): Answer | Error | undefined {
  if (result === undefined) return undefined;
  if ("error" in result) return new Error(`${result.error.message} (${result.error.code})`);
  return result.predictions[0] as Answer | undefined;
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
