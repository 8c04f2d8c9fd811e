import { expect, test } from "vitest";
import { counted, significant } from "./numbers";

test.each([
  [0, "0 rows"],
  [1, "1 row"],
  [12_345, "12,345 rows"],
])("%d is counted with a noun that agrees with it", (value, text) => {
  expect(counted(value, "row")).toBe(text);
});

test("a mean that is shown as 1 is singular, and one of 1.5 is not", () => {
  expect([1.0004, 1.5].map((value) => counted(value, "row", significant))).toEqual(["1 row", "1.5 rows"]);
});
