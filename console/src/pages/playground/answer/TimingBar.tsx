import type { Answered } from "@/api/predictions";
import styles from "./TimingBar.module.css";

const PHASES = ["queue", "load", "compute"] as const;

/** Where the server's time went. */
export function TimingBar({ timings }: { timings: Answered["timings_ms"] }) {
  const named = PHASES.map((phase) => ({ name: phase, ms: timings[phase] }));
  const other = Math.max(0, timings.total - named.reduce((total, { ms }) => total + ms, 0));
  const shown = [...named, { name: "other", ms: other }];
  return (
    <div className={styles.timing}>
      <div className={styles.bar} aria-hidden="true">
        {shown.map(({ name, ms }) => (
          <span key={name} className={styles[name]} style={{ flexGrow: ms / (timings.total || 1) }} />
        ))}
      </div>
      <ul className={styles.legend}>
        {shown.map(({ name, ms }) => (
          <li key={name}>
            <span className={`${styles.dot} ${styles[name]}`} aria-hidden="true" />
            {name} {milliseconds(ms)}
          </li>
        ))}
        <li>total {milliseconds(timings.total)}</li>
      </ul>
    </div>
  );
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(ms < 100 ? 1 : 0)} ms`;
}
