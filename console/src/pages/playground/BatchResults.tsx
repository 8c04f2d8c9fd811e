import { useMemo, useState } from "react";
import type { Run } from "@/widgets/run/useRun";
import { EmptyState } from "@/widgets/states/EmptyState";
import { InlineError } from "@/widgets/states/InlineError";
import { Loading } from "@/widgets/states/Loading";
import { DataTable } from "@/widgets/table/DataTable";
import { BatchFill } from "./BatchFill";
import type { BatchAnswers } from "./BatchMode";
import { type AnsweredRow, joined } from "./batch";
import { batchColumns } from "./batchColumns";
import { RowDialog } from "./RowDialog";

const TABLE_HEIGHT = 560;

/** The answer or the error of each row. */
export function BatchResults({ state }: { state: Run<BatchAnswers> }) {
  const [opened, setOpened] = useState<AnsweredRow | null>(null);
  const value = state.status === "idle" ? undefined : state.value;
  const rows = useMemo(() => (value ? joined(value.rows, value.results) : []), [value]);
  const columns = useMemo(() => batchColumns(setOpened), []);
  if (state.status === "idle") {
    return (
      <EmptyState title="Paste a table">
        Each row names its task, so that one batch has any tasks. A row that fails says so in its place.
      </EmptyState>
    );
  }
  return (
    <>
      {state.status === "failed" && <InlineError error={state.error} />}
      {state.status === "running" && !value && <Loading label="Predicting" />}
      {value && <BatchFill rows={rows} elapsedMs={state.status === "done" ? state.elapsedMs : undefined} />}
      {value && (
        <DataTable
          label="Results"
          columns={columns}
          rows={rows}
          rowKey={({ line }) => String(line)}
          maxHeight={TABLE_HEIGHT}
        />
      )}
      {opened && <RowDialog row={opened} onClose={() => setOpened(null)} />}
    </>
  );
}
