import { expect, test } from "vitest";
import { quotasOf, textsOf } from "./quotas";

test("quotas survive a form, and an empty field is no limit", () => {
  const quotas = {
    requests_per_second: 2.5,
    tokens_per_second: null,
    max_concurrent_requests: 0,
    max_stored_bytes: 1_000_000,
    max_adapters: null,
    max_trainings: 3,
    max_training_rows: null,
    max_training_minutes_per_day: 90.5,
    weight: 2,
  };
  expect(textsOf(quotas).tokens_per_second).toBe("");
  expect(quotasOf(textsOf(quotas))).toEqual(quotas);
  expect(quotasOf({ ...textsOf(quotas), weight: " " }).weight).toBe(1);
});
