import { Badge } from "@/widgets/badge/Badge";
import { counted } from "@/widgets/format/numbers";
import type { AnsweredRow } from "./batch";
import styles from "./layout.module.css";

/** How full the batches were that computed the rows. */
export function BatchFill({ rows, elapsedMs }: { rows: readonly AnsweredRow[]; elapsedMs?: number }) {
  const answered = rows.flatMap(({ result }) => (result && "predictions" in result ? [result] : []));
  const failed = rows.filter(({ problem, result }) => problem || (result && "error" in result)).length;
  const most = (own: "rows" | "adapters") => Math.max(0, ...answered.map(({ batch }) => batch[own]));
  const tokens = answered.reduce((total, { usage }) => total + usage.tokens, 0);
  return (
    <p className={styles.facts} role="status">
      <span>
        {answered.length} of {counted(rows.length, "row")} answered
      </span>
      {failed > 0 && <Badge tone="bad">{failed} failed</Badge>}
      <span>{counted(tokens, "token")}</span>
      <span>
        fullest batch: {counted(most("rows"), "row")} of {counted(most("adapters"), "adapter")}
      </span>
      {elapsedMs !== undefined && <span>{elapsedMs.toFixed(0)} ms in all</span>}
    </p>
  );
}
