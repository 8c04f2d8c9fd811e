import { expect, test } from "vitest";
import { parameterFields, toParameters } from "./parameters";

test("only what is given is sent, with the types of the protocol", () => {
  const fields = parameterFields("classification", false);
  const values = { top_k: "3", raw_scores: true, truncate: true, timeout_ms: "", seed: "7" };
  expect(toParameters(values, fields)).toEqual({ top_k: 3, raw_scores: true, truncate: false });
  expect(toParameters({}, fields)).toEqual({});
});

test("a kind of task has its own parameters", () => {
  const names = (type: string, generates: boolean) => parameterFields(type, generates).map(({ name }) => name);
  expect(names("token-classification", false)).toContain("aggregation");
  expect(names("text2text", true)).toContain("temperature");
  expect(names("text2text", true)).not.toContain("answer");
  expect(names("classification", true)).toContain("answer");
  expect(names("embedding", false)).not.toContain("top_k");
});
