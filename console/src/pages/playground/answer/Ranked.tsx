import { ShareBar } from "@/widgets/bar/ShareBar";
import styles from "./Ranked.module.css";
import { barShare } from "./scale";

interface Props {
  documents: readonly string[];
  scores: readonly number[];
}

/** Documents by their relevance, the best first, with their places in the request. */
export function Ranked({ documents, scores }: Props) {
  const order = [...documents.keys()].sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0));
  return (
    <ol className={styles.list}>
      {order.map((place) => (
        <li key={place}>
          <span className={styles.text}>{documents[place]}</span>
          <span className={styles.place}>line {place + 1}</span>
          <div className={styles.share}>
            <ShareBar share={barShare(scores[place] ?? 0, scores)} />
          </div>
          <span className={styles.score}>{(scores[place] ?? 0).toFixed(4)}</span>
        </li>
      ))}
    </ol>
  );
}
