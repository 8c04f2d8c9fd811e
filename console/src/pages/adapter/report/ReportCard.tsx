import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { reportQuery } from "@/api/adapters";
import { ErrorBoundary } from "@/app/ErrorBoundary";
import { Card } from "@/widgets/card/Card";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import styles from "./ReportCard.module.css";

// With it comes the library of charts.
const ReportView = lazy(async () => ({ default: (await import("@/widgets/report/ReportView")).ReportView }));

interface Props {
  name: string;
  version: number;
}

/** The report of the training of a version. It is data that this page draws; none of it is markup. */
export function ReportCard({ name, version }: Props) {
  const { data: report, isPending, isError, error, refetch } = useQuery(reportQuery(name, version));
  return (
    <Card title={`Training of v${version}`}>
      {isPending && <Loading label="Loading the report" />}
      {isError && <ErrorState error={error} onRetry={() => void refetch()} />}
      {report === null && (
        <p className={styles.note}>
          No report was uploaded with this version. <code>peltier upload {name}.safetensors</code> sends{" "}
          <code>{name}.report.json</code> beside it, which <code>peltier train</code> writes.
        </p>
      )}
      {report && (
        <ErrorBoundary key={version}>
          <Suspense fallback={<Loading label="Loading charts" />}>
            <ReportView report={report} hidesName />
          </Suspense>
        </ErrorBoundary>
      )}
    </Card>
  );
}
