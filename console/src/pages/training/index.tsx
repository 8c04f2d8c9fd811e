import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { useParams } from "wouter";
import { sentence } from "@/api/error";
import { hasEnded, type Training, trainingQuery } from "@/api/trainings";
import { Figure } from "@/widgets/figure/Figure";
import { significant } from "@/widgets/format/numbers";
import { Facts } from "@/widgets/report/Facts";
import { PlainTable } from "@/widgets/report/PlainTable";
import { ErrorState } from "@/widgets/states/ErrorState";
import { InlineError } from "@/widgets/states/InlineError";
import { Loading } from "@/widgets/states/Loading";
import { CurveFigures } from "./CurveFigures";
import { curvesOf } from "./curves";
import { EventLog } from "./EventLog";
import { requestFacts } from "./facts";
import { PreflightFigure } from "./PreflightFigure";
import styles from "./Training.module.css";
import { TrainingHeading } from "./TrainingHeading";
import { TrainingTiles } from "./TrainingTiles";
import { useEvents } from "./useEvents";
import { useSeenProgress } from "./useSeenProgress";

export default function TrainingPage() {
  const { id = "" } = useParams();
  const training = useQuery(trainingQuery(id));
  if (training.isPending) return <Loading label="Loading the training" />;
  if (!training.data) return <ErrorState error={training.error} onRetry={() => void training.refetch()} />;
  return <Detail key={id} training={training.data} />;
}

/** One training, as it goes on. */
function Detail({ training }: { training: Training }) {
  const { id, preflight, metrics, reason, status } = training;
  const { events, isLost, error } = useEvents(id, hasEnded(training));
  const seen = useSeenProgress(training.progress ?? null);
  const curves = useMemo(() => curvesOf(events, seen), [events, seen]);
  useRefresh(id, events.at(-1)?.id);
  const facts = requestFacts(training);
  return (
    <>
      <TrainingHeading training={training} />
      <div className={styles.page}>
        {reason && (
          <p className={`${styles.reason} ${status === "failed" ? styles.failed : ""}`} role="status">
            {sentence(reason)}
          </p>
        )}
        {isLost && (
          <p className={styles.reason} role="status">
            The events of the server are interrupted. The page connects again by itself.
          </p>
        )}
        {error && <InlineError error={error} />}
        <TrainingTiles training={training} />
        <div className={styles.figures}>
          <CurveFigures curves={curves} hasEnded={hasEnded(training)} />
          {preflight && <PreflightFigure preflight={preflight} />}
          {metrics && Object.keys(metrics).length > 0 && (
            <Figure title="Metrics">
              <PlainTable
                head={["Metric", "Value"]}
                rows={Object.entries(metrics).map(([name, value]) => [
                  name,
                  value === null ? "–" : significant(value, 4),
                ])}
              />
            </Figure>
          )}
          {facts.length > 0 && <Facts title="Asked for" facts={facts} />}
          <EventLog events={events} />
        </div>
      </div>
    </>
  );
}

/** Asks for the training again when something has happened to it. */
function useRefresh(id: string, lastEvent: number | undefined): void {
  const client = useQueryClient();
  useEffect(() => {
    if (lastEvent !== undefined) void client.invalidateQueries({ queryKey: ["trainings", "one", id] });
  }, [client, id, lastEvent]);
}
