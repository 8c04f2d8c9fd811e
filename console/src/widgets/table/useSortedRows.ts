import {
  type ColumnDef,
  createSortedRowModel,
  type RowData,
  rowSortingFeature,
  type SortingState,
  sortFns,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import { useMemo, useState } from "react";
import type { Column } from "./column";

const features = tableFeatures({ rowSortingFeature, sortedRowModel: createSortedRowModel(), sortFns });

interface Sorted<Row> {
  sorted: readonly Row[];
  sorting: SortingState;
  toggle: (columnId: string) => void;
}

/** The rows in the order that the visitor chose; in their own order before. */
export function useSortedRows<Row extends RowData>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  rowKey: (row: Row) => string,
): Sorted<Row> {
  const [sorting, setSorting] = useState<SortingState>([]);
  const defined = useMemo(() => columns.map(definition), [columns]);
  const table = useTable({
    features,
    columns: defined,
    data: rows,
    getRowId: rowKey,
    state: { sorting },
    onSortingChange: setSorting,
  });
  const { rows: ordered } = table.getRowModel();
  return {
    sorted: useMemo(() => ordered.map(({ original }) => original), [ordered]),
    sorting,
    toggle: (columnId) => table.getColumn(columnId)?.toggleSorting(),
  };
}

function definition<Row extends RowData>({ id, sortBy }: Column<Row>): ColumnDef<typeof features, Row> {
  return { id, accessorFn: sortBy ?? (() => 0), enableSorting: sortBy !== undefined, sortFn: "auto" };
}
