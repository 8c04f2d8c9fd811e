// The input of a task from the cells of a row.
import type { Row } from "./table";

/** One text, or the two or three texts of a pair or triple. */
export type Input = string | [string, string] | [string, string, string];

/** Throws an error that says what is wrong with the row. */
export function inputOf(row: Row, columns: readonly string[]): Input {
  if (row.problem) throw new Error(row.problem);
  const texts = columns.map((column) => textOf(row, column));
  const [first = "", second, third] = texts;
  if (second === undefined) return first;
  return third === undefined ? [first, second] : [first, second, third];
}

export function textsOf(input: Input): readonly string[] {
  return typeof input === "string" ? [input] : input;
}

function textOf(row: Row, column: string): string {
  const cell = row.cells[column];
  if (cell === undefined) throw new Error(`has no column ${JSON.stringify(column)}`);
  if (typeof cell === "string") return cell;
  throw new Error(`column ${JSON.stringify(column)} is ${JSON.stringify(cell).slice(0, 80)}; it must be a text`);
}
