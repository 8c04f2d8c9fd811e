import { expect, test } from "vitest";
import type { Training } from "@/api/trainings";
import { labelCounts, preflightFacts, requestFacts, warningsOf } from "./facts";

test("a request is names and values, its objects taken apart", () => {
  const request = {
    task: "intent",
    preset: "compacter",
    settings: { learning_rate: 0.003 },
    budget: { minutes: 5, steps: null },
    publish: { alias: "canary" },
    text_columns: ["premise", "hypothesis"],
  };
  expect(requestFacts({ request, created_by: "key:abc" } as unknown as Training)).toEqual([
    ["preset", "compacter"],
    ["learning rate", "0.003"],
    ["minutes", "5"],
    ["alias", "canary"],
    ["text columns", "premise, hypothesis"],
    ["by", "key:abc"],
  ]);
});

test("a pre-flight report has its rows and what is wrong with them", () => {
  const report = {
    rows: { train: 1200, validation: 300 },
    num_labels: 3,
    longest_input: 48,
    max_length: 128,
    truncated: 0.125,
    minutes: 3.5,
    something_new: 7,
  };
  expect(Object.fromEntries(preflightFacts(report))).toEqual({
    "training rows": "1,200",
    "validation rows": "300",
    labels: "3",
    "longest input": "48 of 128 tokens",
    "too long": "12.5%",
    "estimated time": "3 min 30 s",
  });
});

test("labels are sorted by their rows, and a report without any has none", () => {
  expect(labelCounts({ labels: { card: 4, transfer: 9 } })).toEqual([
    ["transfer", 9],
    ["card", 4],
  ]);
  expect(labelCounts({})).toEqual([]);
  expect(warningsOf({ warnings: ["Training rows: 3, which are few."] })).toEqual(["Training rows: 3, which are few."]);
});
