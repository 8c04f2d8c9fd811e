import type { TrainingStatus } from "@/api/trainings";

/** Every status, in the order of a training's life. */
export const STATUSES: readonly TrainingStatus[] = [
  "queued",
  "running",
  "paused",
  "evaluating",
  "publishing",
  "succeeded",
  "failed",
  "cancelled",
];
