import { expect, test } from "vitest";
import { readTable } from "./table";

test("cells are separated by the mark of the first line, and a tab wins over commas", () => {
  const table = readTable("text\tlabel\nfine, thanks\tgood\n");
  expect(table.columns).toEqual(["text", "label"]);
  expect(table.rows).toEqual([{ line: 2, cells: { text: "fine, thanks", label: "good" } }]);
  expect(readTable("text;label\na, b;c").rows[0]?.cells).toEqual({ text: "a, b", label: "c" });
});

test("a row names the line where it begins, after quoted lines and empty ones", () => {
  const { rows } = readTable('text,label\r\n"two\nlines",a\r\n\r\n"with ""quotes""",b');
  expect(rows.map((row) => row.line)).toEqual([2, 5]);
  expect(rows[1]?.cells).toEqual({ text: 'with "quotes"', label: "b" });
});

test("a row with too many or too few cells has a problem and harms no other", () => {
  const { rows } = readTable("text,label\na\nb,c,d\ne,f");
  expect(rows.map((row) => row.problem)).toEqual([
    "has 1 cells; the first line names 2 columns",
    "has 3 cells; the first line names 2 columns",
    undefined,
  ]);
});

test("JSON lines keep the types of their cells, and a bad line has a problem", () => {
  const { columns, rows } = readTable('\uFEFF{"text": "a", "label": 3}\n\n[1]\n{"text": \n{"other": ["x"]}');
  expect(columns).toEqual(["text", "label", "other"]);
  expect(rows.map((row) => row.line)).toEqual([1, 3, 4, 5]);
  expect(rows[0]?.cells.label).toBe(3);
  expect(rows[1]?.problem).toBe("is not a JSON object; each line must be one");
  expect(rows[2]?.problem).toMatch(/^is not JSON: /);
});

test("with positions a table needs no header, and may have one in any order", () => {
  const positions = ["task", "text", "pair"];
  expect(readTable("sst2\tfine\nnli\tone\ttwo", positions).rows).toEqual([
    { line: 1, cells: { task: "sst2", text: "fine" } },
    { line: 2, cells: { task: "nli", text: "one", pair: "two" } },
  ]);
  expect(readTable("Text\tTask\nfine\tsst2", positions).rows).toEqual([
    { line: 2, cells: { text: "fine", task: "sst2" } },
  ]);
  expect(readTable("a\tb\tc\td", positions).rows[0]?.problem).toBe("has 4 cells; a row has at most task, text, pair");
});

test("an empty text has no rows", () => {
  expect(readTable(" \n")).toEqual({ columns: [], rows: [] });
});
