import { expect, test } from "vitest";
import { readBatch } from "./batch";

test("each line is a task and a text, and may have a pair", () => {
  expect(readBatch("sst2\ta gem\nnli\tone\ttwo\n")).toEqual([
    { line: 1, item: { task: "sst2", input: "a gem" } },
    { line: 2, item: { task: "nli", input: ["one", "two"] } },
  ]);
});

test("an empty cell under a header is no text", () => {
  const rows = readBatch("task,text,pair\nsst2,a gem,\nnli,one,two");
  expect(rows.map((row) => row.item?.input)).toEqual(["a gem", ["one", "two"]]);
});

test("a row without a task or a text says so, and the others are sent", () => {
  const rows = readBatch('{"task": "a", "text": "x"}\n{"text": "y"}\n{"task": "b"}\nnot json');
  expect(rows.map((row) => row.problem?.replace(/:.*/, ""))).toEqual([
    undefined,
    "has no task",
    'has no column "text"',
    "is not JSON",
  ]);
});
