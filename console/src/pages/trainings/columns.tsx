import { Link } from "wouter";
import type { TrainingSummary } from "@/api/trainings";
import { ShareBar } from "@/widgets/bar/ShareBar";
import { percent } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { Time } from "@/widgets/time/Time";
import { AdapterLink } from "@/widgets/training/AdapterLink";
import { bestText, shareOf, span, stepsOf } from "@/widgets/training/progress";
import { StatusBadge } from "@/widgets/training/StatusBadge";
import styles from "./Trainings.module.css";

/** The columns of the list. It keeps the server's order, newest first. */
export const COLUMNS: readonly Column<TrainingSummary>[] = [
  {
    id: "task",
    header: "Task",
    width: 170,
    grows: true,
    namesRow: true,
    cell: ({ id, task }) => (
      <Link href={`/trainings/${id}`} className={styles.name} title={`${task}, ${id}`}>
        {task}
      </Link>
    ),
  },
  { id: "status", header: "Status", width: 110, cell: (training) => <StatusBadge training={training} /> },
  { id: "progress", header: "Progress", width: 190, cell: (training) => <Progress training={training} /> },
  { id: "best", header: "Best", width: 160, cell: bestText },
  {
    id: "left",
    header: "Time left",
    width: 124,
    align: "end",
    cell: ({ seconds_left }) => (seconds_left == null ? "–" : span(seconds_left)),
  },
  {
    id: "type",
    header: "Type",
    width: 140,
    cell: ({ task_type }) => task_type ?? "classification",
  },
  {
    id: "preset",
    header: "Preset",
    width: 130,
    cell: ({ preset, recipe }) => preset ?? recipe ?? "default",
  },
  {
    id: "version",
    header: "Adapter",
    width: 150,
    cell: ({ adapter }) => (adapter ? <AdapterLink adapter={adapter} /> : "–"),
  },
  {
    id: "created",
    header: "Created",
    width: 112,
    cell: ({ created_at }) => <Time value={created_at} isRelative />,
  },
];

function Progress({ training }: { training: TrainingSummary }) {
  const share = shareOf(training);
  const steps = stepsOf(training);
  return (
    <div className={styles.progress} title={steps ? `Step ${steps}` : undefined}>
      <ShareBar share={share} tone={toneOf(training)} />
      <span className={styles.share}>{share === null ? "–" : percent(share, 0)}</span>
    </div>
  );
}

function toneOf({ status }: TrainingSummary): "accent" | "muted" | "bad" {
  if (status === "failed") return "bad";
  return status === "cancelled" || status === "paused" ? "muted" : "accent";
}
