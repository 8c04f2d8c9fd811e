import type { SortingState } from "@tanstack/react-table";
import { cellClass } from "./cellClass";
import type { Column } from "./column";
import styles from "./DataTable.module.css";

interface Props<Row> {
  columns: readonly Column<Row>[];
  sorting: SortingState;
  onToggle: (columnId: string) => void;
}

export function HeadRow<Row>({ columns, sorting, onToggle }: Props<Row>) {
  return (
    <thead>
      <tr aria-rowindex={1}>
        {columns.map((column) => {
          const order = sorting.find(({ id }) => id === column.id);
          return (
            <th
              key={column.id}
              scope="col"
              className={cellClass(column)}
              aria-sort={order ? (order.desc ? "descending" : "ascending") : undefined}
            >
              {column.sortBy ? (
                <button type="button" className={styles.sort} onClick={() => onToggle(column.id)}>
                  {column.header}
                  <span aria-hidden="true">{order ? (order.desc ? " ↓" : " ↑") : ""}</span>
                </button>
              ) : (
                column.header
              )}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}
