import { expect, test } from "vitest";
import { type Place, placesOf } from "./report";
import { valueAt } from "./valueAt";

const HEADER = {
  manifest: {
    preset: "compacter",
    parts: [{ kind: "bottleneck", size: -3 }, { kind: "head" }],
    task: { labels: ["yes", "no"] },
    golden: [{ input: "a film" }],
  },
  tensors: [{ name: "head.bias", shape: "[2]" }],
};

test.each<[string, Place["kind"], string, string]>([
  ["tensor 'head.bias' has shape [2]; its part requires [3]", "tensor", "head.bias", "[2]"],
  ["tensor 'head.weight' is missing", "tensor", "head.weight", "absent"],
  ["manifest parts.0.bottleneck.size is -3: it is too small", "field", "parts.0.bottleneck.size", "-3"],
  ["manifest surprise is 1: extra inputs are not permitted", "field", "surprise", "–"],
  ["golden example 0: scores differ by 1", "golden", "0", '"a film"'],
  ["manifest as a whole: golden example 0 does not have one value per label", "golden", "0", '"a film"'],
  [
    "manifest as a whole: task label 1 is 'n\\u200bo': it contains invisible characters",
    "field",
    "task.labels.1",
    '"no"',
  ],
  ["task targets 'yes' and 'no' have the same tokens", "field", "task.labels", '["yes","no"]'],
  ["manifest as a whole: the head has 3 outputs, the task 2 labels", "part", "head", '{"kind":"head"}'],
  ["part 'head' needs a pooler, which this backbone's checkpoint does not have", "part", "head", '{"kind":"head"}'],
  ["manifest as a whole: a T5 task needs a template", "field", "as a whole", "–"],
  ["the file has 0 bytes", "file", "", "–"],
])("“%s” is said at its place, with what the file has there", (reason, kind, name, value) => {
  expect(placesOf([reason])).toEqual([{ kind, name, reasons: [reason] }]);
  expect(valueAt(HEADER, { kind, name, reasons: [] })).toBe(value);
});

test("reasons at the same place stand together", () => {
  const [first, second] = ["tensor 'a' has dtype F16", "tensor 'a' has shape [1]"];
  expect(placesOf([first, "tensor 'b' is missing", second])).toEqual([
    { kind: "tensor", name: "a", reasons: [first, second] },
    { kind: "tensor", name: "b", reasons: ["tensor 'b' is missing"] },
  ]);
});
