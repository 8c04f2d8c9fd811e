import type { RowData } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useEffectEvent, useRef } from "react";
import { Scroller } from "@/widgets/scroll/Scroller";
import { cellClass } from "./cellClass";
import type { Column } from "./column";
import styles from "./DataTable.module.css";
import { HeadRow } from "./HeadRow";
import { useSortedRows } from "./useSortedRows";

interface Props<Row> {
  /** What the table lists, for screen readers. */
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** How many rows there are, if more than `rows` are to come. */
  total?: number;
  /** Called when the last rows come into view; asks for more. */
  onEnd?: () => void;
  /** Stands in place of rows when there are none. */
  empty?: ReactNode;
  /** In CSS pixels; the table fills its place otherwise. */
  maxHeight?: number;
}

const ROW_HEIGHT = 34;
const OVERSCAN = 12;
const END_ROWS = 40;

/** A table of any number of rows, of which only those in view are in the document. Its place bounds its height. */
export function DataTable<Row extends RowData>({
  label,
  columns,
  rows,
  rowKey,
  total,
  onEnd,
  empty,
  maxHeight,
}: Props<Row>) {
  const scroller = useRef<HTMLElement>(null);
  const { sorted, sorting, toggle } = useSortedRows(columns, rows, rowKey);
  const virtual = useVirtualizer({
    count: sorted.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: OVERSCAN,
  });
  const items = virtual.getVirtualItems();
  const [first, last] = [items[0], items[items.length - 1]];
  const reachesEnd = useEffectEvent(() => onEnd?.());
  const isAtEnd = (last?.index ?? 0) >= sorted.length - END_ROWS;
  // biome-ignore lint/correctness/useExhaustiveDependencies: more rows may leave the end still in view.
  useEffect(() => {
    if (isAtEnd) reachesEnd();
  }, [isAtEnd, sorted.length]);
  if (rows.length === 0 && empty) return empty;
  return (
    <Scroller label={label} element={scroller} className={styles.frame} maxHeight={maxHeight}>
      <table
        className={styles.table}
        style={{ minWidth: columns.reduce((sum, { width }) => sum + width, 0) }}
        aria-rowcount={(total ?? rows.length) + 1}
        aria-label={label}
      >
        <colgroup>
          {columns.map(({ id, width, grows }) => (
            <col key={id} style={grows ? undefined : { width }} />
          ))}
        </colgroup>
        <HeadRow columns={columns} sorting={sorting} onToggle={toggle} />
        <tbody>
          <Spacer height={first?.start ?? 0} />
          {items.map(({ index, key }) => {
            const row = sorted[index];
            return row === undefined ? null : (
              <tr key={rowKey(row) || key} aria-rowindex={index + 2} className={styles.row}>
                {columns.map((column) => (
                  <td key={column.id} className={cellClass(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
          <Spacer height={last ? virtual.getTotalSize() - last.end : 0} />
        </tbody>
      </table>
    </Scroller>
  );
}

/** Takes the place of the rows that are not in view. */
function Spacer({ height }: { height: number }) {
  // biome-ignore lint/a11y/noAriaHiddenOnFocusable: a row takes no focus.
  return height > 0 ? <tr aria-hidden="true" style={{ height }} /> : null;
}
