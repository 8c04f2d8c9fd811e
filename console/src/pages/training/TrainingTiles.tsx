import { hasEnded, type Training } from "@/api/trainings";
import { ShareBar } from "@/widgets/bar/ShareBar";
import { counted, percent, significant } from "@/widgets/format/numbers";
import { Tile, Tiles } from "@/widgets/tile/Tile";
import { Time } from "@/widgets/time/Time";
import { AdapterLink } from "@/widgets/training/AdapterLink";
import { bestOf, shareOf, span, stepsOf } from "@/widgets/training/progress";
import { StatusBadge } from "@/widgets/training/StatusBadge";
import styles from "./Training.module.css";

/** The state of a training in a row of numbers. */
export function TrainingTiles({ training }: { training: Training }) {
  const { progress, seconds_left, cost, adapter, attempts, created_at, finished_at } = training;
  const share = shareOf(training);
  const best = bestOf(training);
  const steps = stepsOf(training);
  const epoch = progress?.epoch == null ? null : `epoch ${significant(progress.epoch)}`;
  return (
    <Tiles>
      <Tile name="Status" value={<StatusBadge training={training} />} note={<When training={training} />} />
      <Tile
        name="Progress"
        value={share === null ? "–" : percent(share, 0)}
        note={
          <span className={styles.progress}>
            <ShareBar share={share} />
            <span>{[steps && `step ${steps}`, epoch].filter(Boolean).join(", ") || "no step"}</span>
          </span>
        }
      />
      <Tile name="Best" value={best ? significant(best.value, 4) : "–"} note={best?.metric.replaceAll("_", " ")} />
      {progress?.loss == null ? (
        <Tile name="Loss" value="–" />
      ) : (
        <Tile name="Loss" value={significant(progress.loss)} note="of the last steps" />
      )}
      {hasEnded(training) ? (
        <Tile name="Took" value={span(since(created_at, finished_at))} note="since it was created" />
      ) : (
        <Tile name="Time left" value={seconds_left == null ? "–" : span(seconds_left)} note="at most, estimated" />
      )}
      <Tile
        name="Cost"
        value={span(cost.seconds)}
        note={attempts > 1 ? `of a worker, ${counted(attempts, "attempt")}` : "of a worker"}
      />
      <Tile
        name="Adapter"
        value={adapter ? <AdapterLink adapter={adapter} /> : "–"}
        note={adapter ? "with the report of this training" : undefined}
      />
    </Tiles>
  );
}

function When({ training: { created_at, finished_at } }: { training: Training }) {
  return (
    <>
      {finished_at ? "since " : "created "}
      <Time value={finished_at ?? created_at} isRelative />
    </>
  );
}

function since(from: string, to: string | null | undefined): number {
  const end = to ? new Date(to) : new Date();
  return Math.max(0, (end.getTime() - new Date(from).getTime()) / 1_000);
}
