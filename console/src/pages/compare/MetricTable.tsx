import type { Comparison } from "@/api/comparisons";
import { PairTable } from "./PairTable";

interface Props {
  found: Comparison;
  references: readonly [string, string];
}

/** The metrics of both versions; the one that decides stands first. */
export function MetricTable({ found, references }: Props) {
  const main = found.main_metric;
  const names = Object.keys(found.first.metrics).sort((a, b) => Number(b === main) - Number(a === main));
  const rows = names.map((name) => {
    const [a, b] = [found.first.metrics[name] ?? 0, found.second.metrics[name] ?? 0];
    return { name, a, b, last: signed(b - a) };
  });
  return <PairTable title="Metrics" head={["metric", "difference"]} references={references} rows={rows} />;
}

function signed(value: number): string {
  return `${value > 0 ? "+" : ""}${value.toFixed(4)}`;
}
