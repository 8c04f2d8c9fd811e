// How far a training is, as numbers and texts.
import type { TrainingSummary } from "@/api/trainings";
import { duration, significant, whole } from "@/widgets/format/numbers";

/** From 0 to 1; null before the first step is known. */
export function shareOf({ status, progress }: TrainingSummary): number | null {
  if (status === "succeeded") return 1;
  if (progress?.step == null || !progress.max_steps) return null;
  return Math.min(1, progress.step / progress.max_steps);
}

/** “120 of 400”. */
export function stepsOf({ progress }: TrainingSummary): string | null {
  if (progress?.step == null) return null;
  return progress.max_steps ? `${whole(progress.step)} of ${whole(progress.max_steps)}` : whole(progress.step);
}

/** The name and value of the best validation so far; null before the first. */
export function bestOf({ progress }: TrainingSummary): { metric: string; value: number } | null {
  return progress?.metric && progress.best != null ? { metric: progress.metric, value: progress.best } : null;
}

/** “accuracy 0.8312”. */
export function bestText(training: TrainingSummary): string {
  const best = bestOf(training);
  return best ? `${best.metric} ${significant(best.value, 4)}` : "–";
}

/** “42 s”, “3 min 5 s”, “2 h 10 min”. */
export function span(seconds: number): string {
  if (seconds === 0) return "0 s";
  if (seconds < 60) return duration(seconds < 10 ? seconds : Math.round(seconds));
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return joined([minutes, "min"], [Math.floor(seconds % 60), "s"]);
  return joined([Math.floor(minutes / 60), "h"], [minutes % 60, "min"]);
}

function joined(...parts: [number, string][]): string {
  return parts
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${whole(count)} ${unit}`)
    .join(" ");
}
