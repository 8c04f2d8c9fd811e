import { expect, test } from "vitest";
import { inputForm, inputsOf } from "./inputForm";

test("each document of a ranking is a pair with the query", () => {
  const form = inputForm({ type: "ranking", inputs: "pair" }, false);
  expect(inputsOf(form, ["card", "lost card\n\n top up "])).toEqual([
    ["card", "lost card"],
    ["card", " top up "],
  ]);
});

test("a single text keeps its lines unless each is a text of its own", () => {
  const shape = { type: "classification", inputs: "single" } as const;
  expect(inputsOf(inputForm(shape, false), ["a\nb"])).toEqual(["a\nb"]);
  expect(inputsOf(inputForm(shape, true), ["a\n\nb"])).toEqual(["a", "b"]);
});

test("an input with an empty field is none", () => {
  expect(inputsOf(inputForm({ type: "span", inputs: "pair" }, false), ["who?", " "])).toEqual([]);
  expect(inputsOf(inputForm({ type: "x", inputs: "triple" }, false), ["a", "b", "c"])).toEqual([["a", "b", "c"]]);
});
