// A new training as the texts of a form, and the request that they mean.
import type { Schema } from "@/api/server";
import type { TrainingRequest } from "@/api/trainings";
import { readTable } from "@/rows/table";

export type TrainedType = NonNullable<TrainingRequest["task_type"]>;

export interface Form {
  task: string;
  /** Empty is the server's choice, as in every field but the task. */
  type: TrainedType | "";
  preset: string;
  /** Pasted rows; a file stands in place of them. */
  rows: string;
  textColumns: string;
  labelColumn: string;
  alias: string;
  budget: string;
  unit: "minutes" | "steps";
}

export const EMPTY: Form = {
  task: "",
  type: "",
  preset: "",
  rows: "",
  textColumns: "",
  labelColumn: "",
  alias: "",
  budget: "",
  unit: "minutes",
};

/** Each type with the columns that its rows have by default. */
export const TYPES: readonly { type: TrainedType; columns: readonly string[] }[] = [
  { type: "classification", columns: ["text", "label"] },
  { type: "multilabel", columns: ["text", "label"] },
  { type: "regression", columns: ["text", "label"] },
  { type: "token-classification", columns: ["text", "label"] },
  { type: "text2text", columns: ["text", "label"] },
  { type: "embedding", columns: ["text", "pair", "label"] },
  { type: "sparse-embedding", columns: ["text", "pair", "label"] },
  { type: "multi-vector-embedding", columns: ["text", "pair", "label"] },
  { type: "ranking", columns: ["query", "document", "label"] },
  { type: "span", columns: ["question", "context", "answers"] },
];

/** The columns that rows of this type have unless others are named. */
export function columnsOf(type: Form["type"]): readonly string[] {
  return TYPES.find((known) => known.type === (type || "classification"))?.columns ?? [];
}

/** The request; with a file it has no examples. Throws an error that says which line cannot be read. */
export function requestOf(form: Form, hasFile: boolean): TrainingRequest {
  const texts = form.textColumns.split(",").flatMap((name) => name.trim() || []);
  const [preset, label, alias] = [form.preset.trim(), form.labelColumn.trim(), form.alias.trim()];
  return {
    task: form.task.trim(),
    ...(form.type && { task_type: form.type }),
    ...(preset && { preset }),
    ...(texts.length > 0 && { text_columns: texts }),
    ...(label && { label_column: label }),
    ...(form.budget.trim() && { budget: { [form.unit]: Number(form.budget) } }),
    ...(alias && { publish: { alias } }),
    ...(!hasFile && { examples: examplesOf(form.rows) }),
  };
}

function examplesOf(text: string): NonNullable<Schema<"TrainingRequest">["examples"]> {
  const { rows } = readTable(text);
  const unread = rows.find(({ problem }) => problem);
  if (unread) throw new Error(`Line ${unread.line} ${unread.problem}.`);
  if (rows.length === 0) throw new Error("The pasted text has no rows. Its first line names the columns.");
  return rows.map(({ cells }) => cells as Record<string, Schema<"JsonValue">>);
}
