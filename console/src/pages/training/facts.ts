// A training's request and pre-flight report as names and values.
import type { Training } from "@/api/trainings";
import { percent, significant, whole } from "@/widgets/format/numbers";
import type { Fact } from "@/widgets/report/facts";
import { span } from "@/widgets/training/progress";

// What was asked for is not rounded.
const MAX_DIGITS = 15;
const SHOWN_ELSEWHERE = new Set(["task", "file_id", "validation_file_id"]);

/** What was asked for; objects are taken apart. */
export function requestFacts({ request = {}, created_by }: Training): Fact[] {
  const facts = Object.entries(request)
    .filter(([name]) => !SHOWN_ELSEWHERE.has(name))
    .flatMap(([name, value]) => (isObject(value) ? Object.entries(value) : [[name, value] as const]))
    .filter(([, value]) => value !== null)
    .map(([name, value]): Fact => [name.replaceAll("_", " "), textOf(value)]);
  return created_by ? [...facts, ["by", created_by]] : facts;
}

/** What a worker found in the rows. Names that this page does not know are left out. */
export function preflightFacts(preflight: Readonly<Record<string, unknown>>): Fact[] {
  const number = (name: string) => (typeof preflight[name] === "number" ? preflight[name] : null);
  const rows = isObject(preflight.rows) ? preflight.rows : {};
  const minutes = number("minutes");
  const truncated = number("truncated");
  const facts: (readonly [string, string | null])[] = [
    ["training rows", wholeOr(rows.train)],
    ["validation rows", wholeOr(rows.validation)],
    ["labels", number("num_labels") ? wholeOr(number("num_labels")) : null],
    ["repeated rows", wholeOr(number("duplicates"))],
    ["contradicting labels", wholeOr(number("conflicts"))],
    ["validation rows in training", wholeOr(number("leaks"))],
    ["longest input", tokens(number("longest_input"), number("max_length"))],
    ["too long", truncated === null ? null : percent(truncated)],
    ["steps an epoch", wholeOr(number("steps_per_epoch"))],
    ["steps at most", wholeOr(number("max_steps"))],
    ["estimated time", minutes === null ? null : span(60 * minutes)],
  ];
  return facts.filter((fact): fact is Fact => fact[1] !== null);
}

/** The rows of each label, most first. */
export function labelCounts({ labels }: Readonly<Record<string, unknown>>): [string, number][] {
  if (!isObject(labels)) return [];
  const counts = Object.entries(labels).filter((entry): entry is [string, number] => typeof entry[1] === "number");
  return counts.sort(([, one], [, other]) => other - one);
}

export function warningsOf({ warnings }: Readonly<Record<string, unknown>>): string[] {
  return Array.isArray(warnings) ? warnings.map(String) : [];
}

function tokens(longest: number | null, most: number | null): string | null {
  if (longest === null) return null;
  return most === null ? `${whole(longest)} tokens` : `${whole(longest)} of ${whole(most)} tokens`;
}

function wholeOr(value: unknown): string | null {
  return typeof value === "number" ? whole(value) : null;
}

function textOf(value: unknown): string {
  if (typeof value === "number") return significant(value, MAX_DIGITS);
  if (Array.isArray(value)) return value.map(textOf).join(", ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
