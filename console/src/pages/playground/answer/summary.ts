// An answer in a few words, for the cell of a table.
import type { Prediction } from "@/api/predictions";

export function summary(prediction: Prediction): string {
  if ("text" in prediction) return prediction.text;
  if ("label" in prediction) return `${prediction.label} (${prediction.score.toFixed(3)})`;
  if ("labels" in prediction) return prediction.labels.join(", ") || "no label";
  if ("value" in prediction) return prediction.value.toFixed(4);
  if ("embedding" in prediction) return `${prediction.embedding.length} dimensions`;
  if ("terms" in prediction) return prediction.terms.map(({ term }) => term).join(", ") || "no term";
  if ("entities" in prediction) {
    return prediction.entities.map(({ text, label }) => `${label}: ${text}`).join(", ") || "no entity";
  }
  if ("answer" in prediction) return prediction.answer || "no answer";
  return prediction.score.toFixed(4);
}
