import { expect, test } from "vitest";
import { readReport } from "./report";

const report = {
  format_version: 1,
  name: "intents",
  preset: "compacter",
  metric: "accuracy",
  ...Object.fromEntries(
    ["backbone", "task", "training", "metrics", "curves", "parameters", "cost"].map((name) => [name, {}]),
  ),
};

test("a report is read", () => {
  expect(readReport("a.report.json", JSON.stringify(report)).name).toBe("intents");
});

test("what is no report is refused with the reason", () => {
  const refusal = (text: string) => () => readReport("a.json", text);
  expect(refusal("<!doctype html>")).toThrow(/a\.json is not JSON\. The HTML page opens by itself/);
  expect(refusal("{")).toThrow(/is not JSON/);
  expect(refusal("[1]")).toThrow(/no format_version 1/);
  expect(refusal(JSON.stringify({ ...report, cost: 3, name: undefined }))).toThrow(/lacks name, cost/);
});
