import { Figure } from "@/widgets/figure/Figure";
import { whole } from "@/widgets/format/numbers";
import { Facts } from "@/widgets/report/Facts";
import { Scroller } from "@/widgets/scroll/Scroller";
import { labelCounts, preflightFacts, warningsOf } from "./facts";
import styles from "./Training.module.css";

const MAX_HEIGHT = 230;

/** What the worker found in the rows before the first step. */
export function PreflightFigure({ preflight }: { preflight: Readonly<Record<string, unknown>> }) {
  const warnings = warningsOf(preflight);
  const labels = labelCounts(preflight);
  return (
    <>
      <Facts title="Pre-flight" facts={preflightFacts(preflight)} />
      {labels.length > 0 && <Labels labels={labels} />}
      {warnings.length > 0 && (
        <Figure title="Warnings">
          <ul className={styles.warnings}>
            {warnings.map((warning) => (
              <li key={warning}>{warning}</li>
            ))}
          </ul>
        </Figure>
      )}
    </>
  );
}

function Labels({ labels }: { labels: readonly [string, number][] }) {
  const most = labels[0]?.[1] || 1;
  return (
    <Figure title="Training rows of each label">
      <Scroller label="Labels" maxHeight={MAX_HEIGHT}>
        <dl className={styles.labels}>
          {labels.map(([label, count]) => (
            <div key={label} className={styles.label}>
              <dt title={label}>{label}</dt>
              <dd>
                <span className={styles.bar} style={{ width: `${(100 * count) / most}%` }} />
              </dd>
              <dd className={styles.count}>{whole(count)}</dd>
            </div>
          ))}
        </dl>
      </Scroller>
    </Figure>
  );
}
