import { counted } from "@/widgets/format/numbers";
import panel from "@/widgets/panel/Panel.module.css";
import type { Problem } from "./askBoth";
import styles from "./compare.module.css";

const MAX_SHOWN = 50;

/** The rows that were not judged, and why. */
export function Problems({ problems }: { problems: readonly Problem[] }) {
  return (
    <section className={panel.panel} aria-label="Rows that were not judged">
      <h2>{counted(problems.length, "row")} not judged</h2>
      <ul className={styles.problems}>
        {problems.slice(0, MAX_SHOWN).map(({ line, problem }) => (
          <li key={line}>
            <b>line {line}</b> {problem}
          </li>
        ))}
      </ul>
      {problems.length > MAX_SHOWN && <p className={panel.note}>The first {MAX_SHOWN} are shown.</p>}
    </section>
  );
}
