import { expect, test } from "vitest";
import { gateMatrix, meanGates } from "./gates";
import { segments } from "./marks";
import { similarities } from "./similarity";
import { tokenTimes } from "./tokenTimes";

test("marks are cut by code points, so that an emoji before them moves nothing", () => {
  const mark = { start: 2, end: 7, label: "place", score: 0.9 };
  expect(segments("😀 Paris!", [mark]).map(({ start, text, mark }) => [start, text, mark?.label])).toEqual([
    [0, "😀 ", undefined],
    [2, "Paris", "place"],
    [7, "!", undefined],
  ]);
});

test("a mark inside another one is left out", () => {
  const outer = { start: 0, end: 4, label: "a", score: 1 };
  expect(segments("abcdef", [outer, { ...outer, start: 2, end: 6 }]).map(({ text }) => text)).toEqual(["abcd", "ef"]);
});

test("the cosine of a vector with itself is 1, and 0 with one without length", () => {
  const [first, second] = similarities([
    [3, 4],
    [0, 0],
    [-4, 3],
  ]);
  expect(first?.[0]).toBeCloseTo(1, 12);
  expect(first?.[2]).toBeCloseTo(0, 12);
  expect(second).toEqual([0, 0, 0]);
});

test("gates are rows of parts and columns of blocks; a block without a part has none", () => {
  const matrix = gateMatrix({ lora: [0.5, null], prefix: [0.25, 0.75] });
  expect(matrix).toEqual({
    parts: ["lora", "prefix"],
    blocks: ["0", "1"],
    values: [
      [0.5, null],
      [0.25, 0.75],
    ],
  });
  expect(matrix && meanGates(matrix).map(({ mean }) => mean)).toEqual([0.5, 0.5]);
  expect(gateMatrix(undefined)).toBeNull();
});

test("token times begin at the request", () => {
  const pieces = [100, 110, 140].map((atMs, place) => ({ place, text: "a", atMs }));
  expect(tokenTimes(pieces)).toEqual({
    firstMs: 100,
    lastMs: 140,
    gapsMs: [10, 30],
    medianGapMs: 20,
    piecesPerSecond: 50,
  });
  expect(tokenTimes([])).toBeNull();
});
