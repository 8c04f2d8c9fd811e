// The filter as it stands in the address, so that a link leads to the same records.
import type { AuditFilter } from "@/api/audit";

export const FIELDS = ["tenant", "action", "actor", "since", "until"] as const;
export type FieldName = (typeof FIELDS)[number];

/** The filter that an address asks for. Its times are those of a `datetime-local` input, in the visitor's zone. */
export function filterOf(query: URLSearchParams): AuditFilter {
  const filter: AuditFilter = {};
  for (const name of FIELDS) {
    const value = query.get(name)?.trim();
    if (!value) continue;
    filter[name] = name === "since" || name === "until" ? instantOf(value) : value;
  }
  return filter;
}

/** The address with `value` in place of what `name` was. */
export function changed(query: URLSearchParams, name: FieldName, value: string): URLSearchParams {
  const next = new URLSearchParams(query);
  if (value) next.set(name, value);
  else next.delete(name);
  return next;
}

function instantOf(local: string): string {
  const time = new Date(local);
  return Number.isNaN(time.getTime()) ? local : time.toISOString();
}
