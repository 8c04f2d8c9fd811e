import { useMemo } from "react";
import type { Schema } from "@/api/server";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import { Time } from "@/widgets/time/Time";
import { detailText } from "./detail";

export type AuditRecord = Schema<"AuditRecord">;

interface Props {
  records: readonly AuditRecord[];
  onEnd: () => void;
}

const COLUMNS: readonly Column<AuditRecord>[] = [
  { id: "at", header: "Time", width: 250, cell: ({ at }) => <Time value={at} /> },
  { id: "tenant", header: "Tenant", width: 120, cell: ({ tenant }) => tenant },
  { id: "actor", header: "Actor", width: 140, cell: ({ actor }) => <code title={actor}>{actor}</code> },
  { id: "action", header: "Action", width: 130, cell: ({ action }) => action },
  { id: "subject", header: "Subject", width: 200, cell: ({ subject }) => <span title={subject}>{subject}</span> },
  {
    id: "detail",
    header: "Detail",
    width: 260,
    grows: true,
    cell: ({ detail }) => {
      const text = detailText(detail);
      return <span title={text}>{text}</span>;
    },
  },
];

/** The records in a table, newest first. */
export function Records({ records, onEnd }: Props) {
  const rows = useMemo(() => [...records], [records]);
  return <DataTable label="Audit log" columns={COLUMNS} rows={rows} rowKey={({ id }) => String(id)} onEnd={onEnd} />;
}
