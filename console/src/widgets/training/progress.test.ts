import { expect, test } from "vitest";
import type { TrainingSummary } from "@/api/trainings";
import { bestText, shareOf, span, stepsOf } from "./progress";

const training = (given: Partial<TrainingSummary>): TrainingSummary => ({
  id: "trn_1",
  task: "intent",
  status: "running",
  cost: { seconds: 0 },
  attempts: 1,
  created_at: "2026-01-01T00:00:00Z",
  created_by: "",
  ...given,
});

test("the share of the steps is done", () => {
  expect(shareOf(training({ progress: { step: 30, max_steps: 120 } }))).toBe(0.25);
  expect(shareOf(training({ progress: { step: 90, max_steps: 60 } }))).toBe(1);
  expect(shareOf(training({ status: "queued" }))).toBe(null);
});

test("a training that ended before its last step is done", () => {
  expect(shareOf(training({ status: "succeeded", progress: { step: 30, max_steps: 120 } }))).toBe(1);
});

test("what is not known yet has a dash or is left out", () => {
  expect(bestText(training({}))).toBe("–");
  expect(bestText(training({ progress: { metric: "accuracy", best: null } }))).toBe("–");
  expect(stepsOf(training({}))).toBe(null);
});

test("the best validation has the name of its metric", () => {
  expect(bestText(training({ progress: { metric: "accuracy", best: 0.83124 } }))).toBe("accuracy 0.8312");
});

test("times have at most two units", () => {
  expect([0, 0.4, 42.4, 60, 185, 3600, 7860].map(span)).toEqual([
    "0 s",
    "400 ms",
    "42 s",
    "1 min",
    "3 min 5 s",
    "1 h",
    "2 h 11 min",
  ]);
});
