import { expect, test } from "vitest";
import type { Golden } from "@/api/golden";
import type { Input } from "@/rows/input";
import { exampleTexts } from "./example";
import { inputForm } from "./inputForm";

const golden = (...inputs: Input[]): Golden[] => inputs.map((input) => ({ input, output: [], text: null }));

test("an example fills the fields of its kind of task", () => {
  const single = inputForm({ type: "classification", inputs: "single" }, false);
  expect(exampleTexts(single, golden("a\nb", "c"))).toEqual(["a\nb"]);
  const pair = inputForm({ type: "span", inputs: "pair" }, false);
  expect(exampleTexts(pair, golden(["who?", "Ada."], ["x", "y"]))).toEqual(["who?", "Ada."]);
  expect(exampleTexts(pair, golden("of another shape"))).toEqual([]);
});

test("documents of one query are lines, and so are texts to compare", () => {
  const ranking = inputForm({ type: "ranking", inputs: "pair" }, false);
  expect(exampleTexts(ranking, golden(["q", "one\n two"], ["other", "three"], ["q", "four"]))).toEqual([
    "q",
    "one two\nfour",
  ]);
  const embedding = inputForm({ type: "embedding", inputs: "single" }, true);
  expect(exampleTexts(embedding, golden("a", "b", "c", "d"))).toEqual(["a\nb\nc"]);
});
