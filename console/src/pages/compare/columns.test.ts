import { expect, test } from "vitest";
import { guessColumns } from "./columns";

test("columns are guessed by their names", () => {
  expect(guessColumns(["text", "label", "label_text"], 1)).toEqual({ texts: ["text"], label: "label" });
  expect(guessColumns(["idx", "sentence1", "sentence2", "label"], 2)).toEqual({
    texts: ["sentence1", "sentence2"],
    label: "label",
  });
  expect(guessColumns(["question", "context", "answers"], 2).label).toBe("answers");
});

test("unknown names are taken in their order, and the last is the label", () => {
  expect(guessColumns(["a", "b", "c"], 2)).toEqual({ texts: ["a", "b"], label: "c" });
  expect(guessColumns([], 1)).toEqual({ texts: [""], label: "" });
});
