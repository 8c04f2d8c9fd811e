// What a prediction answers, and how an answer is shown.
import type { Answer, Kind } from "@/api/comparisons";
import type { Prediction } from "@/api/predictions";
import type { Task } from "@/api/tasks";

const ANSWERS: Record<Kind, (prediction: Record<string, unknown>) => unknown> = {
  classification: ({ label }) => label ?? null,
  multilabel: ({ labels }) => labels ?? [],
  regression: ({ value }) => value,
  text2text: ({ text }) => text ?? "",
  ranking: ({ score }) => score,
  "token-classification": ({ entities }) => ((entities ?? []) as Entity[]).map(placeOf),
  span: ({ answer }) => answer ?? "",
};

interface Entity {
  start: number;
  end: number;
  label: string;
}

/** Throws an error if answers of the two tasks cannot be compared. */
export function kindOfBoth(first: Task, second: Task): Kind {
  if (first.type !== second.type) {
    throw new Error(
      `${first.reference} is a ${first.type} task and ${second.reference} a ${second.type} task: they cannot be compared.`,
    );
  }
  if (!(first.type in ANSWERS))
    throw new Error(`${first.reference} answers ${first.type}s, which have no right answer.`);
  return first.type as Kind;
}

/** The part of a prediction that is judged. */
export function answerOf(kind: Kind, prediction: Prediction): Answer {
  return ANSWERS[kind](prediction as unknown as Record<string, unknown>) as Answer;
}

/** A label or an answer of a judged row, in words. */
export function shownAs(kind: Kind, value: unknown): string {
  if (!Array.isArray(value)) return String(value ?? "");
  return kind === "span" ? value.join(" or ") || "no answer" : value.join(", ") || "none";
}

function placeOf({ start, end, label }: Entity): Entity {
  return { start, end, label };
}
