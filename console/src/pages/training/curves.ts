// The curves of a training, from its events and from its progress while this tab looked.
import type { Training, TrainingEvent } from "@/api/trainings";
import type { CurvePoint } from "@/widgets/report/report";

export type Progress = NonNullable<Training["progress"]>;

export interface TrainingCurves {
  /** The name of the validation metric; null before the first validation. */
  metric: string | null;
  loss: CurvePoint[];
  validation: CurvePoint[];
  learningRate: CurvePoint[];
  /** The step of the best validation. */
  bestStep: number | null;
}

/** The curves, by step. Of a step that was repeated after a pause, the newest counts. */
export function curvesOf(events: readonly TrainingEvent[], seen: readonly Progress[]): TrainingCurves {
  // A worker records an event after each validation; between two of them the progress repeats the last value.
  const validated = events.filter(({ kind }) => kind === "progress").map(({ data }) => data as Progress);
  const all = [...seen, ...validated];
  const validation = pointsOf(validated, ({ value }) => value);
  return {
    metric: all.findLast(({ metric }) => metric)?.metric ?? null,
    loss: pointsOf(all, ({ loss }) => loss),
    validation,
    learningRate: pointsOf(all, ({ learning_rate }) => learning_rate),
    bestStep: validated.at(-1)?.best_step ?? null,
  };
}

function pointsOf(
  progress: readonly Progress[],
  value: (progress: Progress) => number | null | undefined,
): CurvePoint[] {
  const points = new Map<number, CurvePoint>();
  for (const one of progress) {
    const number = value(one);
    if (one.step != null && one.epoch != null && number != null) {
      points.set(one.step, { step: one.step, epoch: one.epoch, value: number });
    }
  }
  return [...points.values()].sort((first, second) => first.step - second.step);
}
