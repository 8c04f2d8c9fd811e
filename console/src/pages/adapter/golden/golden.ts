// Golden examples as text: what an artifact's maker recorded, beside what the server answers.
import type { Golden } from "@/api/golden";
import type { Schema } from "@/api/server";
import type { Input } from "@/rows/input";

type Prediction = Schema<"PredictResponse">["predictions"][number];

const FEW = 3;

export function inputText(input: Input): string {
  return typeof input === "string" ? input : input.join(" ⏐ ");
}

/** What the maker recorded: the label of the highest score, the text, or the first numbers. */
export function recordedText(golden: Golden, task: Record<string, unknown>): string {
  const labels = Array.isArray(task.labels) ? (task.labels as string[]) : [];
  if (golden.text) return golden.text;
  if (task.type === "classification" && labels.length === golden.output.length) {
    return labels[golden.output.indexOf(Math.max(...golden.output))] ?? "";
  }
  if (task.type === "multilabel")
    return labels.filter((_, index) => (golden.output[index] ?? 0) > 0).join(", ") || "none";
  return numbersText(golden.output);
}

/** The same of the server's answer. */
export function answeredText(prediction: Prediction): string {
  if ("entities" in prediction)
    return prediction.entities.map(({ text, label }) => `${text}: ${label}`).join(", ") || "none";
  if ("labels" in prediction) return prediction.labels.join(", ") || "none";
  if ("embedding" in prediction) return numbersText(prediction.embedding as readonly number[]);
  if ("terms" in prediction) return prediction.terms.map(({ term }) => term).join(", ") || "none";
  if ("vectors" in prediction) return numbersText(prediction.vectors.flat());
  if ("answer" in prediction) return prediction.answer || "no answer";
  if ("text" in prediction) return prediction.text;
  if ("label" in prediction) return prediction.label;
  if ("value" in prediction) return String(prediction.value);
  return String(prediction.score);
}

/** The probability or score of the answer, where it has one. */
export function scoreOf(prediction: Prediction): number | null {
  return "score" in prediction && typeof prediction.score === "number" ? prediction.score : null;
}

/** Whether both can be compared as text. */
export function areComparable(task: Record<string, unknown>): boolean {
  return task.type === "classification" || task.type === "multilabel" || task.type === "text2text";
}

function numbersText(numbers: readonly number[]): string {
  const shown = numbers.slice(0, FEW).map((value) => value.toPrecision(FEW));
  return numbers.length > FEW ? `${shown.join(", ")}, … (${numbers.length} values)` : shown.join(", ");
}
