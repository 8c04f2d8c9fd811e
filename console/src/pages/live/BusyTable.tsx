import { useMemo } from "react";
import { Figure } from "@/widgets/figure/Figure";
import { duration, percent, significant } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import { numberColumn } from "@/widgets/table/numberColumn";
import type { AdapterRate, Point } from "./point";

interface Row extends AdapterRate {
  name: string;
}

const WIDTH = 92;
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
  numberColumn("rate", "Requests/s", WIDTH, ({ rate }) => rate, significant),
  numberColumn("p50", "p50, about", WIDTH, ({ p50 }) => p50, duration),
  numberColumn("p99", "p99, about", WIDTH, ({ p99 }) => p99, duration),
  numberColumn("failing", "Failing", WIDTH, ({ failing }) => failing, percent),
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
  return Array.from(point?.adapters ?? [], ([name, rates]) => ({ name, ...rates }))
    .filter(({ rate }) => rate > 0)
    .sort((a, b) => b.rate - a.rate);
}
