import { useMemo } from "react";
import { Figure } from "@/widgets/figure/Figure";
import { duration, percent, significant } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import type { AdapterRate, Point } from "./point";

interface Row extends AdapterRate {
  name: string;
}

const COLUMNS: readonly Column<Row>[] = [
  {
    id: "name",
    header: "Adapter",
    width: 170,
    grows: true,
    namesRow: true,
    cell: ({ name }) => name,
    sortBy: ({ name }) => name,
  },
  rateColumn(
    "rate",
    "Requests/s",
    (row) => significant(row.rate),
    (row) => row.rate,
  ),
  rateColumn(
    "p50",
    "p50",
    (row) => time(row.p50),
    (row) => row.p50 ?? 0,
  ),
  rateColumn(
    "p99",
    "p99",
    (row) => time(row.p99),
    (row) => row.p99 ?? 0,
  ),
  rateColumn(
    "failing",
    "Failing",
    (row) => percent(row.failing),
    (row) => row.failing,
  ),
];
const MAX_HEIGHT = 320;

/** The adapter versions that answered in the last seconds, the busiest first. */
export function BusyTable({ point }: { point: Point | undefined }) {
  const rows = useMemo(() => rowsOf(point), [point]);
  return (
    <Figure title="Busiest adapters now" isWide>
      <DataTable
        label="Busiest adapters now"
        columns={COLUMNS}
        rows={rows}
        rowKey={({ name }) => name}
        maxHeight={MAX_HEIGHT}
        empty={<p>No adapter answered in the last seconds.</p>}
      />
    </Figure>
  );
}

function rowsOf(point: Point | undefined): Row[] {
  return Object.entries(point?.adapters ?? {})
    .map(([name, rates]) => ({ name, ...rates }))
    .filter(({ rate }) => rate > 0)
    .sort((a, b) => b.rate - a.rate);
}

function rateColumn(id: string, header: string, cell: (row: Row) => string, sortBy: (row: Row) => number): Column<Row> {
  return { id, header, width: 92, align: "end", cell, sortBy };
}

function time(value: number | null): string {
  return value === null ? "–" : duration(value);
}
