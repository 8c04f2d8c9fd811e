// The parameters that a kind of task has, and their values in the form.
import type { Parameters } from "@/api/predictions";

export interface ParameterField {
  name: keyof Parameters;
  label: string;
  kind: "integer" | "number" | "boolean" | "choice";
  choices?: readonly string[];
  /** What holds if nothing is given. */
  hint: string;
}

/** A text, or a ticked box; empty for the server's default. */
export type ParameterValues = Readonly<Partial<Record<keyof Parameters, string | boolean>>>;

const LABELLED = ["classification", "multilabel"];
const TOKENS = ["token-classification", "span"];
const GENERATION: readonly ParameterField[] = [
  { name: "max_new_tokens", label: "Max new tokens", kind: "integer", hint: "the task's own" },
  { name: "temperature", label: "Temperature", kind: "number", hint: "0, greedy" },
  { name: "top_p", label: "Top p", kind: "number", hint: "1" },
  { name: "seed", label: "Seed", kind: "integer", hint: "random" },
  { name: "num_beams", label: "Beams", kind: "integer", hint: "1" },
];

/** `generates`: the backbone is a T5, which can write the answer of a labelled task. */
export function parameterFields(type: string, generates: boolean): ParameterField[] {
  const fields: ParameterField[] = [];
  if (LABELLED.includes(type)) fields.push({ name: "top_k", label: "Top k", kind: "integer", hint: "all labels" });
  if (generates && type !== "text2text") {
    const hint = "score the labels";
    fields.push({ name: "answer", label: "Answer", kind: "choice", choices: ["score", "generate"], hint });
  }
  if (generates) fields.push(...GENERATION);
  if (type === "token-classification") {
    const choices = ["none", "simple", "first", "average", "max"];
    fields.push({ name: "aggregation", label: "Aggregation", kind: "choice", choices, hint: "first" });
    fields.push({ name: "words", label: "Words", kind: "choice", choices: ["tokenizer", "spaces"], hint: "tokenizer" });
  }
  if (TOKENS.includes(type)) fields.push({ name: "stride", label: "Stride", kind: "integer", hint: "the task's own" });
  if (type === "sparse-embedding") fields.push({ name: "top_k", label: "Top k", kind: "integer", hint: "all terms" });
  if (type === "embedding") fields.push({ name: "dimensions", label: "Dimensions", kind: "integer", hint: "all" });
  fields.push({ name: "timeout_ms", label: "Timeout (ms)", kind: "integer", hint: "none" });
  fields.push({ name: "raw_scores", label: "Raw scores", kind: "boolean", hint: "logits in place of probabilities" });
  fields.push({ name: "truncate", label: "Refuse long inputs", kind: "boolean", hint: "they are truncated otherwise" });
  return fields;
}

/** Only what differs from the server's defaults, of those that `fields` has. */
export function toParameters(values: ParameterValues, fields: readonly ParameterField[]): Parameters {
  const given: Record<string, unknown> = {};
  for (const { name, kind } of fields) {
    const value = values[name];
    if (value === undefined || value === "" || value === false) continue;
    if (kind === "boolean") given[name] = name !== "truncate";
    else given[name] = kind === "choice" ? value : Number(value);
  }
  return given as Parameters;
}
