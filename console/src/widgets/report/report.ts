// The report of a training, as `peltier train` writes it to NAME.report.json and the server keeps it.
import type { Schema } from "@/api/server";

/** A published report, or one in a file: that of a baseline has a reason in place of an artifact. */
export type Report = Omit<Schema<"TrainingReport">, "artifact"> & {
  artifact?: Schema<"ReportArtifact"> | null;
  reason?: string | null;
};
export type CurvePoint = Schema<"ReportPoint">;
export type Counted = Schema<"ReportCount">;
export type LabelScore = Schema<"ReportLabel">;
export type Confusion = Schema<"ReportConfusion">;
export type Mistake = Schema<"ReportMistake">;
export type Merging = Schema<"ReportMerging">;

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
