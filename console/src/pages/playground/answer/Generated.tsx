import type { Schema } from "@/api/server";
import { Badge } from "@/widgets/badge/Badge";
import styles from "./Generated.module.css";

/** A generated text, its score and why it ended. */
export function Generated({ prediction }: { prediction: Schema<"TextPrediction"> }) {
  const { text, score, finish_reason, label, value } = prediction;
  return (
    <div className={styles.generated}>
      <p className={styles.text}>{text || <i>an empty text</i>}</p>
      <p className={styles.facts}>
        {label != null && <Badge tone="accent">{label}</Badge>}
        {value != null && <Badge tone="accent">{value}</Badge>}
        <Badge tone={finish_reason === "length" ? "warn" : "neutral"}>
          {finish_reason === "length" ? "cut at max new tokens" : "ended by itself"}
        </Badge>
        <span>score {score.toFixed(4)}</span>
      </p>
    </div>
  );
}
