// An answer in a few words, for the cell of a table.
import type { Prediction } from "@/api/predictions";

/** The size of an answer that is a vector for each token. */
export function vectorsText(vectors: readonly (readonly number[])[]): string {
  return `${vectors.length} vectors of ${vectors[0]?.length ?? 0} values`;
}

export function summary(prediction: Prediction): string {
  if ("text" in prediction) return prediction.text;
  if ("label" in prediction) return `${prediction.label} (${prediction.score.toFixed(3)})`;
  if ("labels" in prediction) return prediction.labels.join(", ") || "no label";
  if ("value" in prediction) return prediction.value.toFixed(4);
  if ("embedding" in prediction) return `${prediction.embedding.length} dimensions`;
  if ("terms" in prediction) return prediction.terms.map(({ term }) => term).join(", ") || "no term";
  if ("vectors" in prediction) return vectorsText(prediction.vectors);
  if ("entities" in prediction) {
    return prediction.entities.map(({ text, label }) => `${label}: ${text}`).join(", ") || "no entity";
  }
  if ("answer" in prediction) return prediction.answer || "no answer";
  return prediction.score.toFixed(4);
}
