// Labels of a table, read as `peltier compare` reads them. Each function throws an error that names the cell.
import type { Span } from "./entities";

/** One label. An integer stands for the label at that position, unless label names are integers. */
export function readLabel(cell: unknown, names: readonly string[]): string {
  if ((typeof cell !== "string" && typeof cell !== "number") || !String(cell).trim()) {
    throw new Error(`label ${show(cell)} is not a label; it must be a text or a number`);
  }
  const label = String(cell);
  const place = Number(label);
  if (!names.includes(label) && isInteger(label) && place < names.length && !names.some(isInteger)) {
    return names[place] ?? label;
  }
  return label;
}

/** The labels of a list, of a JSON list in a text, of a text split at `|`, or of one label. */
export function readLabels(cell: unknown, names: readonly string[]): Set<string> {
  if (Array.isArray(cell)) return new Set(cell.map((label) => readLabel(label, names)));
  if (typeof cell !== "string") return new Set([readLabel(cell, names)]);
  if (!cell.trim()) return new Set();
  if (cell.trimStart().startsWith("[")) return readLabels(readJsonList(cell), names);
  return new Set(cell.split("|").map((part) => readLabel(part.trim(), names)));
}

export function readNumber(cell: unknown): number {
  const isNumber = typeof cell === "number" || (typeof cell === "string" && cell.trim() !== "");
  const value = isNumber ? Number(cell) : Number.NaN;
  if (!Number.isFinite(value)) throw new Error(`label ${show(cell)} is not a finite number, which this task needs`);
  return value;
}

export function readText(cell: unknown): string {
  return readLabel(cell, []).trim();
}

/** The texts of the right answers to a question; none if the question has no answer. */
export function readAnswers(cell: unknown): string[] {
  const read = typeof cell === "string" ? parsed(cell) : cell;
  const texts = Array.isArray(read) ? read.map((one) => one?.text) : (read as { text?: unknown } | null)?.text;
  if (Array.isArray(texts) && texts.every((text) => typeof text === "string" && text.trim())) return texts;
  throw new Error(`answers ${show(cell)} cannot be read; they must be such as {"text": ["1976"]}`);
}

export function readEntities(cell: unknown): Span[] {
  const read = typeof cell === "string" ? parsed(cell) : cell;
  if (Array.isArray(read) && read.every(isSpan)) return read.map(({ start, end, label }) => ({ start, end, label }));
  throw new Error(
    `label ${show(cell)} has no entities; they must be a list such as [{"start": 0, "end": 5, "label": "person"}]`,
  );
}

function isSpan(one: unknown): one is Span {
  const { start, end, label } = (one ?? {}) as Partial<Span>;
  return Number.isInteger(start) && Number.isInteger(end) && typeof label === "string";
}

function readJsonList(cell: string): unknown[] {
  const found = parsed(cell);
  if (Array.isArray(found)) return found;
  throw new Error(`label ${show(cell)} begins like a list but is not JSON; JSON lists have texts in double quotes`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isInteger(name: string): boolean {
  return /^[0-9]{1,9}$/.test(name);
}

function show(cell: unknown): string {
  return (JSON.stringify(cell) ?? "that is absent").slice(0, 200);
}
