// The report of a training, as `peltier train` writes it to NAME.report.json.

/** A number that may be missing, because it does not exist or was no number. */
type Maybe = number | null;
type Metrics = Readonly<Record<string, Maybe>>;

export interface CurvePoint {
  step: number;
  epoch: number;
  value: Maybe;
}

export interface Counted {
  part: string;
  parameters: number;
  percent: number;
}

export interface LabelScore {
  label: string;
  rows: number;
  precision: Maybe;
  recall: Maybe;
  f1: Maybe;
}

export interface Confusion {
  labels: readonly string[];
  matrix: readonly (readonly number[])[];
}

export interface Mistake {
  input: readonly string[];
  label: string;
  answer: string;
  score: Maybe;
}

export interface Merging {
  ways: readonly { name: string; metrics: Readonly<Record<string, { mean: number; sd: Maybe }>> }[];
}

export interface Report {
  name: string;
  preset: string;
  artifact?: { file: string; digest: string; bytes: number } | null;
  reason?: string | null;
  backbone: { name: string; family: string; num_parameters?: number };
  task: { type: string; labels: readonly string[] };
  training: { data?: Readonly<Record<string, unknown>>; hyperparameters?: Readonly<Record<string, unknown>> };
  metrics: Metrics;
  metric: string;
  warnings?: readonly string[];
  majority?: { answer: string; share: number; metrics: Metrics } | null;
  resolved?: Readonly<Record<string, unknown>> | null;
  curves: {
    training: Readonly<Record<string, readonly CurvePoint[]>>;
    validation: Readonly<Record<string, readonly CurvePoint[]>>;
    best_step: number | null;
  };
  parameters: { backbone: number; parts: readonly Counted[]; total: Counted; trained: Counted };
  cost: {
    device: string;
    dtype: string;
    seconds_per_epoch: Maybe;
    training_seconds: number;
    total_seconds: number;
    memory_bytes: number;
    device_memory_bytes: Maybe;
  };
  confusion?: Confusion | null;
  label_scores?: readonly LabelScore[] | null;
  mistakes?: readonly Mistake[] | null;
  residuals?: { mean: number; sd: number; gold: readonly number[]; found: readonly number[] } | null;
  samples?: readonly { input: string | readonly string[]; references: readonly string[]; text: string }[] | null;
  gates?: { rows: number; means: Readonly<Record<string, readonly Maybe[]>> } | null;
  merging?: Merging | null;
}

const OBJECTS = ["backbone", "task", "training", "metrics", "curves", "parameters", "cost"] as const;
const TEXTS = ["name", "preset", "metric"] as const;

/** The report that a file holds. Throws an `Error` whose message says what the file is not. */
export function readReport(file: string, text: string): Report {
  const json = parsed(file, text);
  if (!isObject(json) || json.format_version !== 1) {
    throw new Error(`${file} is no report: it has no format_version 1. Open the NAME.report.json of a training.`);
  }
  const missing = [
    ...TEXTS.filter((name) => typeof json[name] !== "string"),
    ...OBJECTS.filter((name) => !isObject(json[name])),
  ];
  if (missing.length > 0) throw new Error(`${file} is no report: it lacks ${missing.join(", ")}.`);
  return json as unknown as Report;
}

function parsed(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const advice = /^\s*</.test(text)
      ? "The HTML page opens by itself in a browser; this page draws the NAME.report.json beside it."
      : "Open the NAME.report.json of a training.";
    throw new Error(`${file} is not JSON. ${advice}`);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
