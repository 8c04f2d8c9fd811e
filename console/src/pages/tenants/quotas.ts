// Quotas as the texts of a form, and back.
import type { Schema } from "@/api/server";

export type Quotas = Schema<"TenantQuotas">;
export type QuotaName = keyof Quotas;
export type QuotaTexts = Readonly<Record<QuotaName, string>>;

interface QuotaField {
  name: QuotaName;
  label: string;
  hint: string;
}

export const QUOTA_FIELDS: readonly QuotaField[] = [
  { name: "requests_per_second", label: "Requests a second", hint: "As whole requests in at most 10 s" },
  { name: "tokens_per_second", label: "Tokens a second", hint: "Counted over 10 s" },
  { name: "max_concurrent_requests", label: "Requests at a time", hint: "" },
  { name: "max_stored_bytes", label: "Stored bytes", hint: "Deleted versions count until they are purged" },
  { name: "max_adapters", label: "Adapters", hint: "With a live version" },
  { name: "max_trainings", label: "Trainings", hint: "That have not ended" },
  { name: "max_training_rows", label: "Rows of a training", hint: "Examples and validation" },
  { name: "max_training_minutes_per_day", label: "Training minutes a day", hint: "Of workers, over 24 hours" },
  { name: "weight", label: "Weight", hint: "The share of a busy server, 0.01 to 100" },
];

export function textsOf(quotas: Quotas): QuotaTexts {
  return Object.fromEntries(QUOTA_FIELDS.map(({ name }) => [name, String(quotas[name] ?? "")])) as QuotaTexts;
}

/** What the texts mean; an empty text is no limit, and the weight 1. */
export function quotasOf(texts: QuotaTexts): Quotas {
  const numbers = QUOTA_FIELDS.map(({ name }) => [name, numberOf(texts[name])]);
  const quotas = Object.fromEntries(numbers) as Omit<Quotas, "weight"> & { weight: number | null };
  return { ...quotas, weight: quotas.weight ?? 1 };
}

function numberOf(text: string): number | null {
  return text.trim() === "" ? null : Number(text);
}
