// A pasted table as the items of a mixed batch.
import type { Item, Result } from "@/api/predictions";
import { type Input, inputOf } from "@/rows/input";
import { type Row, readTable } from "@/rows/table";

const POSITIONS = ["task", "text", "pair", "third"];

export interface BatchRow {
  line: number;
  item?: Item;
  /** Why the row is not sent. */
  problem?: string;
}

export interface AnsweredRow extends BatchRow {
  /** Absent for a row that was not sent, or that has no answer yet. */
  result?: Result;
}

/** The rows with their results, of which there is one for each row that was sent, as far as they have arrived. */
export function joined(rows: readonly BatchRow[], results: readonly Result[]): AnsweredRow[] {
  let next = 0;
  return rows.map((row) => (row.item ? { ...row, result: results[next++] } : row));
}

/** One row for each line: a task, a text and perhaps a pair and a third text. */
export function readBatch(text: string): BatchRow[] {
  return readTable(text, POSITIONS).rows.map(batchRow);
}

function batchRow(row: Row): BatchRow {
  try {
    if (row.problem) throw new Error(row.problem);
    return { line: row.line, item: { task: taskOf(row), input: input(row) } };
  } catch (error) {
    return { line: row.line, problem: (error as Error).message };
  }
}

function taskOf(row: Row): string {
  const task = row.cells.task;
  if (typeof task === "string" && task.trim()) return task.trim();
  throw new Error("has no task");
}

function input(row: Row): Input {
  // A cell that is empty in a table with a header is a text that is not there.
  const columns = ["text", "pair", "third"].filter((column) => column === "text" || row.cells[column]);
  return inputOf(row, columns);
}
