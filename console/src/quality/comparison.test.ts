import { expect, test } from "vitest";
import { checkCase, compare } from "./comparison";
// The Python client's own results for the same answers; its tests keep this file true.
import cases from "./comparison.cases.json";
import type { Answer, Case, Kind } from "./judge";

for (const { kind, names, rows, first, second, expected } of cases) {
  test(`a ${kind} is judged as by peltier compare`, () => {
    const given = rows as unknown as Case[];
    for (const one of given) checkCase(kind as Kind, one, names, names);
    const [a, b] = [first, second].map((answers, side) => ({
      task: `task@${side + 1}`,
      names,
      answers: answers as unknown as Answer[],
    })) as [never, never];
    const found = compare(kind as Kind, given, a, b);
    for (const [side, judged] of [
      [expected.first, found.first],
      [expected.second, found.second],
    ] as const) {
      expectClose(judged.metrics, side.metrics);
      expect(Object.keys(judged.classes).sort()).toEqual(Object.keys(side.classes).sort());
      for (const [label, metrics] of Object.entries(side.classes)) expectClose(judged.classes[label], metrics);
    }
    expect(found.better).toBe(expected.better);
    expect(found.differing.map((row) => given[row]?.line)).toEqual(expected.lines);
    expect([found.onlyFirstRight, found.onlySecondRight]).toEqual(expected.only_right);
    expect(found.pValue).toBeCloseTo(expected.p_value, 12);
  });
}

test("an integer stands for the name at its position, which must be the same for both versions", () => {
  const one = { line: 1, input: "a", label: 1 };
  checkCase("classification", one, ["bad", "good"], ["bad", "good"]);
  expect(() => checkCase("classification", one, ["bad", "good"], ["good", "bad"])).toThrow("write names for integers");
  expect(() => checkCase("classification", { ...one, label: "fine" }, ["bad", "good"], ["bad", "good"])).toThrow(
    'label "fine" is not one of the 2 labels of either version',
  );
  expect(() => checkCase("regression", { ...one, label: "much" }, [], [])).toThrow(
    'label "much" is not a finite number',
  );
});

function expectClose(found: unknown, expected: object): void {
  const own = found as Record<string, number>;
  expect(Object.keys(own).sort()).toEqual(Object.keys(expected).sort());
  for (const [name, value] of Object.entries(expected)) expect(own[name], name).toBeCloseTo(value, 12);
}
