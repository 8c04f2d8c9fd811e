import type { TrainingStatus, TrainingSummary } from "@/api/trainings";
import { Badge } from "@/widgets/badge/Badge";

const TONES: Partial<Record<TrainingStatus, "good" | "warn" | "bad" | "accent">> = {
  running: "accent",
  evaluating: "accent",
  publishing: "accent",
  paused: "warn",
  succeeded: "good",
  failed: "bad",
};
const WISHES = { pause: "pausing", cancel: "cancelling" } as const;

/** The status of a training, or what was asked for and is not done yet. */
export function StatusBadge({ training: { status, wish, reason } }: { training: TrainingSummary }) {
  return (
    <Badge tone={wish ? "warn" : TONES[status]} title={reason ?? undefined}>
      {wish ? WISHES[wish] : status}
    </Badge>
  );
}
