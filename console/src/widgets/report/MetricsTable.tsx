import { Figure } from "@/widgets/figure/Figure";
import { significant } from "@/widgets/format/numbers";
import { PlainTable } from "./PlainTable";
import type { Report } from "./report";

/** The metrics of the validation set beside those of the best constant answer. */
export function MetricsTable({ report: { metrics, metric, majority } }: { report: Report }) {
  const text = (value: number | null | undefined) => (value == null ? "–" : significant(value, 4));
  return (
    <Figure title="Metrics">
      <PlainTable
        head={majority ? ["Metric", "Value", "Majority"] : ["Metric", "Value"]}
        rows={Object.entries(metrics).map(([name, value]) => [
          name === metric ? `${name} (chose the epoch)` : name,
          text(value),
          ...(majority ? [text(majority.metrics[name])] : []),
        ])}
      />
    </Figure>
  );
}
