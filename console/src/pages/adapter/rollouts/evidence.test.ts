import { describe, expect, it } from "vitest";
import { progressOf } from "./evidence";

describe("progressOf", () => {
  it("grows by the logarithm and stays between 0 and 1", () => {
    expect(progressOf(1, 40)).toBe(0);
    expect(progressOf(0.02, 40)).toBe(0);
    expect(progressOf(Math.sqrt(40), 40)).toBeCloseTo(0.5);
    expect(progressOf(1e9, 40)).toBe(1);
  });
});
