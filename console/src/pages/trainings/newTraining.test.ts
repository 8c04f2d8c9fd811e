import { expect, test } from "vitest";
import { columnsOf, EMPTY, requestOf } from "./newTraining";

const ROWS = "text,label\nwhere is my card,card\nmove 5 dollars,transfer\n";

test("what is left empty is not sent", () => {
  expect(requestOf({ ...EMPTY, task: " intent " }, true)).toEqual({ task: "intent" });
});

test("everything that is given is sent", () => {
  const form = {
    ...EMPTY,
    task: "nli",
    type: "classification" as const,
    preset: "compacter",
    textColumns: "premise, hypothesis",
    labelColumn: "gold",
    alias: "canary",
    budget: "200",
    unit: "steps" as const,
  };
  expect(requestOf(form, true)).toEqual({
    task: "nli",
    task_type: "classification",
    preset: "compacter",
    text_columns: ["premise", "hypothesis"],
    label_column: "gold",
    budget: { steps: 200 },
    publish: { alias: "canary" },
  });
});

test("pasted rows are examples, and a file replaces them", () => {
  const form = { ...EMPTY, task: "intent", rows: ROWS };
  expect(requestOf(form, false).examples).toEqual([
    { text: "where is my card", label: "card" },
    { text: "move 5 dollars", label: "transfer" },
  ]);
  expect(requestOf(form, true)).not.toHaveProperty("examples");
});

test("a pasted line that cannot be read is named", () => {
  const rows = '{"text": "a", "label": "x"}\n[1]\n';
  expect(() => requestOf({ ...EMPTY, rows }, false)).toThrow("Line 2 is not a JSON object; each line must be one.");
  expect(() => requestOf({ ...EMPTY, rows: "text,label\n" }, false)).toThrow("has no rows");
});

test("each type has its columns", () => {
  expect(columnsOf("")).toEqual(["text", "label"]);
  expect(columnsOf("span")).toEqual(["question", "context", "answers"]);
});
