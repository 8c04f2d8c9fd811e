import { counted } from "@/widgets/format/numbers";
import type { BatchRow } from "./batch";

/** How many rows were read, and the first that could not be. */
export function RowCount({ rows }: { rows: readonly BatchRow[] }) {
  const bad = rows.filter(({ problem }) => problem);
  if (rows.length === 0) return null;
  const tasks = new Set(rows.map(({ item }) => item?.task).filter(Boolean));
  return (
    <span>
      {counted(rows.length, "row")}, {counted(tasks.size, "task")}
      {bad.length > 0 && `; ${bad.length} cannot be read, the first in line ${bad[0]?.line}: it ${bad[0]?.problem}`}
    </span>
  );
}
