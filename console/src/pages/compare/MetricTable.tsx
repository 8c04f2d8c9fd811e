import { type Comparison, MAIN_METRIC } from "@/quality/comparison";
import type { Kind } from "@/quality/judge";
import panel from "@/widgets/panel/Panel.module.css";
import styles from "./compare.module.css";

interface Props {
  kind: Kind;
  found: Comparison;
  references: readonly [string, string];
}

/** The metrics of both versions; the one that decides stands first. */
export function MetricTable({ kind, found, references }: Props) {
  const main = MAIN_METRIC[kind];
  const names = Object.keys(found.first.metrics).sort((a, b) => Number(b === main) - Number(a === main));
  return (
    <section className={panel.panel} aria-label="Metrics">
      <h2>Metrics</h2>
      <table className={styles.table}>
        <thead>
          <tr>
            <th scope="col">metric</th>
            {references.map((reference) => (
              <th key={reference} scope="col">
                {reference}
              </th>
            ))}
            <th scope="col">difference</th>
          </tr>
        </thead>
        <tbody>
          {names.map((name) => {
            const [a, b] = [found.first.metrics[name] ?? 0, found.second.metrics[name] ?? 0];
            return (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{a.toFixed(4)}</td>
                <td>{b.toFixed(4)}</td>
                <td>{signed(b - a)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

function signed(value: number): string {
  return `${value > 0 ? "+" : ""}${value.toFixed(4)}`;
}
