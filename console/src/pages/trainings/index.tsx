import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { type TrainingStatus, trainingPages } from "@/api/trainings";
import { useCommands } from "@/app/commands";
import { navigate } from "@/app/hash";
import { Button } from "@/widgets/button/Button";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { EmptyState } from "@/widgets/states/EmptyState";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import { DataTable } from "@/widgets/table/DataTable";
import { COLUMNS } from "./columns";
import { NewTrainingDialog } from "./NewTrainingDialog";
import { StatusFilter } from "./StatusFilter";
import { STATUSES } from "./statuses";
import styles from "./Trainings.module.css";

/** What this tenant trains on the server. */
export default function TrainingsPage() {
  const [query, setQuery] = useSearchParams();
  const [isCreating, setCreating] = useState(false);
  const status = STATUSES.find((known) => known === query.get("status")) ?? null;
  const pages = useInfiniteQuery(trainingPages(status));
  const rows = useMemo(() => pages.data?.pages.flatMap((page) => page.trainings) ?? [], [pages.data]);
  const show = (next: TrainingStatus | null) => setQuery(next ? { status: next } : {}, { replace: true });
  useCommands(
    useMemo(
      () => [{ id: "trainings.new", title: "New training", group: "Trainings", run: () => setCreating(true) }],
      [],
    ),
  );
  return (
    <div className={styles.page}>
      <PageHeading title="Trainings" about="Adapters that this server trains, newest first.">
        <StatusFilter status={status} onChange={show} />
        <Button kind="primary" onClick={() => setCreating(true)}>
          New training
        </Button>
      </PageHeading>
      {pages.isPending && <Loading label="Loading trainings" />}
      {pages.isError && rows.length === 0 && <ErrorState error={pages.error} onRetry={() => void pages.refetch()} />}
      {pages.isSuccess && (
        <DataTable
          label="Trainings"
          columns={COLUMNS}
          rows={rows}
          rowKey={({ id }) => id}
          onEnd={() => {
            if (pages.hasNextPage && !pages.isFetching) void pages.fetchNextPage();
          }}
          empty={status ? <NothingFound status={status} onClear={() => show(null)} /> : <NoTrainings />}
        />
      )}
      {isCreating && (
        <NewTrainingDialog onClose={() => setCreating(false)} onBegun={({ id }) => navigate(`/trainings/${id}`)} />
      )}
    </div>
  );
}

function NoTrainings() {
  return (
    <EmptyState title="No trainings yet">
      <p>
        Begin one with the button above, from labelled rows. A worker trains the adapter and this server publishes it:{" "}
        <code>peltier serve --worker</code> has a worker beside the server, <code>peltier worker</code> runs one on
        another machine.
      </p>
    </EmptyState>
  );
}

function NothingFound({ status, onClear }: { status: TrainingStatus; onClear: () => void }) {
  return (
    <EmptyState title={`No training is ${status}`} actions={<Button onClick={onClear}>Show all</Button>}>
      <p>The others have another status.</p>
    </EmptyState>
  );
}
