import type { Column } from "./column";
import styles from "./DataTable.module.css";

/** The class of a column's cells and of its heading. */
export function cellClass<Row>({ align, namesRow }: Column<Row>): string | undefined {
  return [align === "end" && styles.end, namesRow && styles.named].filter(Boolean).join(" ") || undefined;
}
