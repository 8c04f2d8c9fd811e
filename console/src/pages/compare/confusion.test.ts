import { expect, test } from "vitest";
import { confusedLabels, confusionOf, occurringLabels } from "./confusion";

test("matrices of two sides have the same labels, in the order of the task", () => {
  const labels = occurringLabels(
    ["b", "a"],
    [
      ["b", "x"],
      ["a", "a"],
    ],
    ["c", "b", "a"],
  );
  expect(labels).toEqual(["b", "a", "x"]);
});

test("rows are right labels and columns are answers", () => {
  const { counts } = confusionOf(["a", "b"], ["a", "a", "b"], ["a", "b", "b"]);
  expect(counts).toEqual([
    [1, 1],
    [0, 1],
  ]);
});

test("of many labels those with most wrong answers are kept, in their order", () => {
  const gold = ["a", "b", "c", "c", "d"];
  expect(confusedLabels(["a", "b", "c", "d"], gold, [["a", "c", "b", "b", "d"]], 2)).toEqual(["b", "c"]);
});
