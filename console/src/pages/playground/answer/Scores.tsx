import { useState } from "react";
import { ShareBar } from "@/widgets/bar/ShareBar";
import { Button } from "@/widgets/button/Button";
import styles from "./Scores.module.css";
import { barShare } from "./scale";

interface Props {
  scores: Readonly<Record<string, number>>;
  /** The labels of the answer. */
  chosen: readonly string[];
  /** How many are shown at first. */
  limit?: number;
}

/** Labels with their scores, the best first. */
export function Scores({ scores, chosen, limit = 6 }: Props) {
  const [showsAll, setShowsAll] = useState(false);
  const sorted = Object.entries(scores).sort(([, a], [, b]) => b - a);
  const shown = showsAll ? sorted : sorted.slice(0, limit);
  const values = Object.values(scores);
  return (
    <div>
      <ul className={styles.list}>
        {shown.map(([label, score]) => (
          <li key={label} className={chosen.includes(label) ? styles.chosen : undefined}>
            <span className={styles.label} title={label}>
              {label}
            </span>
            <ShareBar share={barShare(score, values)} tone={chosen.includes(label) ? "accent" : "muted"} />
            <span className={styles.score}>{score.toFixed(4)}</span>
          </li>
        ))}
      </ul>
      {sorted.length > limit && (
        <Button kind="quiet" onClick={() => setShowsAll(!showsAll)} aria-expanded={showsAll}>
          {showsAll ? "Show the best only" : `Show all ${sorted.length}`}
        </Button>
      )}
    </div>
  );
}
