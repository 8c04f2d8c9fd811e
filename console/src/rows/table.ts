// Rows of a pasted table or of a file: JSON lines, or text with tabs, commas, semicolons or bars between the cells.
import Papa from "papaparse";

export interface Row {
  /** The line where the row begins, from 1. */
  line: number;
  cells: Readonly<Record<string, unknown>>;
  /** Why the row cannot be read. */
  problem?: string;
}

export interface Table {
  /** Every column, in the order of the header or of its first use. */
  columns: readonly string[];
  rows: readonly Row[];
}

/**
 * Reads `text`. A row that cannot be read has a problem and harms no other.
 *
 * A delimited text begins with the names of its columns. With `positions` it need not: if its first row does not
 * contain the first of these names, they name its cells in order.
 */
export function readTable(text: string, positions: readonly string[] = []): Table {
  const body = text.replace(/^\uFEFF/, "");
  const isJson = body.trimStart().startsWith("{");
  const { columns, rows } = isJson ? readJsonLines(body) : readDelimited(body, positions);
  return { columns, rows };
}

function readJsonLines(text: string): Table {
  const columns = new Set<string>();
  const rows: Row[] = [];
  text.split("\n").forEach((written, index) => {
    if (!written.trim()) return;
    const row = readJsonLine(index + 1, written);
    for (const column of Object.keys(row.cells)) columns.add(column);
    rows.push(row);
  });
  return { columns: [...columns], rows };
}

function readJsonLine(line: number, written: string): Row {
  try {
    const cells: unknown = JSON.parse(written);
    if (typeof cells === "object" && cells !== null && !Array.isArray(cells)) return { line, cells: { ...cells } };
    return { line, cells: {}, problem: "is not a JSON object; each line must be one" };
  } catch (error) {
    return { line, cells: {}, problem: `is not JSON: ${error instanceof Error ? error.message : error}` };
  }
}

function readDelimited(text: string, positions: readonly string[]): Table {
  const [first, ...others] = readRecords(text);
  if (!first) return { columns: [], rows: [] };
  const names = first.cells.map((name) => name.trim());
  const known = positions[0];
  if (known !== undefined && !names.some((name) => name.toLowerCase() === known)) {
    return { columns: positions, rows: [first, ...others].map((record) => positionedRow(record, positions)) };
  }
  const columns = known === undefined ? names : names.map((name) => name.toLowerCase());
  return { columns, rows: others.map((record) => namedRow(record, columns)) };
}

interface Cells {
  line: number;
  cells: string[];
  problem?: string;
}

function readRecords(text: string): Cells[] {
  const records: Cells[] = [];
  let line = 1;
  let read = 0;
  Papa.parse<string[]>(text, {
    delimiter: delimiterOf(text),
    step: ({ data, errors, meta }) => {
      const problem = errors.find((error) => error.type === "Quotes");
      if (data.some((cell) => cell.trim())) {
        records.push({ line, cells: data, ...(problem && { problem: `has a wrong quote: ${problem.message}` }) });
      }
      line += countLines(text, read, meta.cursor);
      read = meta.cursor;
    },
  });
  return records;
}

/** The separator in the first line that is not empty. A tab wins, because texts have commas. */
function delimiterOf(text: string): string {
  const header = text.split("\n").find((written) => written.trim()) ?? "";
  const found = ["\t", ",", ";", "|"].map((mark) => ({ mark, count: header.split(mark).length - 1 }));
  if (found[0]?.count) return "\t";
  return found.reduce((best, other) => (other.count > best.count ? other : best)).mark;
}

function countLines(text: string, from: number, to: number): number {
  let count = 0;
  for (let at = text.indexOf("\n", from); at >= 0 && at < to; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}

function namedRow({ line, cells, problem }: Cells, columns: readonly string[]): Row {
  if (problem) return { line, cells: {}, problem };
  if (cells.length !== columns.length) {
    return { line, cells: {}, problem: `has ${cells.length} cells; the first line names ${columns.length} columns` };
  }
  return { line, cells: Object.fromEntries(columns.map((column, place) => [column, cells[place]])) };
}

function positionedRow({ line, cells, problem }: Cells, positions: readonly string[]): Row {
  if (problem) return { line, cells: {}, problem };
  if (cells.length > positions.length) {
    return { line, cells: {}, problem: `has ${cells.length} cells; a row has at most ${positions.join(", ")}` };
  }
  return { line, cells: Object.fromEntries(cells.map((cell, place) => [positions[place], cell])) };
}
