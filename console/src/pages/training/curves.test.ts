import { expect, test } from "vitest";
import type { TrainingEvent } from "@/api/trainings";
import { curvesOf, type Progress } from "./curves";

const at = (step: number, given: Partial<Progress> = {}): Progress => ({ step, epoch: step / 10, ...given });
const event = (data: Progress, kind: TrainingEvent["kind"] = "progress"): TrainingEvent => ({
  id: data.step ?? 0,
  at: "2026-01-01T00:00:00Z",
  kind,
  message: "",
  data: { ...data },
});

test("the loss is of every step that was seen, the validation only of events", () => {
  const events = [event(at(10, { loss: 2, metric: "accuracy", value: 0.5, best: 0.5 }))];
  const seen = [at(5, { loss: 3 }), at(12, { loss: 1.5, metric: "accuracy", value: 0.5, best: 0.5 })];
  const curves = curvesOf(events, seen);
  expect(curves.loss.map(({ step, value }) => [step, value])).toEqual([
    [5, 3],
    [10, 2],
    [12, 1.5],
  ]);
  expect(curves.validation).toEqual([{ step: 10, epoch: 1, value: 0.5 }]);
  expect(curves.metric).toBe("accuracy");
});

test("the best validation has its step", () => {
  const values = [0.5, 0.8, 0.8];
  const events = values.map((value, place) => event(at(10 * (place + 1), { value, best: 0.8, best_step: 20 })));
  expect(curvesOf(events, []).bestStep).toBe(20);
});

test("a step that was repeated after a pause counts once", () => {
  const events = [event(at(10, { loss: 2 })), event(at(10, { loss: 1 }))];
  expect(curvesOf(events, []).loss).toEqual([{ step: 10, epoch: 1, value: 1 }]);
});

test("a training without events has no curves", () => {
  const events = [event({}, "state")];
  expect(curvesOf(events, [])).toEqual({ metric: null, loss: [], validation: [], learningRate: [], bestStep: null });
});
