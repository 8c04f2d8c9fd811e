import type { ReactNode } from "react";

/** One column of a `DataTable`. */
export interface Column<Row> {
  id: string;
  header: string;
  /** In CSS pixels; what is left over goes to the columns with `grows`, for which this is the least. */
  width: number;
  grows?: boolean;
  align?: "start" | "end";
  /** Names the row, so that it stays in view when the table scrolls sideways; for the first column. */
  namesRow?: boolean;
  cell: (row: Row) => ReactNode;
  /** What the rows are sorted by; a column without it cannot be sorted. */
  sortBy?: (row: Row) => string | number;
}
