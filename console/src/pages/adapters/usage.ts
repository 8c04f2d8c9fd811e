import type { Activity, Tier } from "@/api/activity";
import type { Schema } from "@/api/server";

export interface Usage {
  tier: Tier | null;
  requests: number;
  errors: number;
  /** Seconds of the version with most requests; null before its first request. */
  p50: number | null;
  p99: number | null;
}

const FASTEST: readonly Tier[] = ["device", "host", "store"];

/** The use of all versions of an adapter together, and the fastest tier that one of them is in. */
export function usageOf(adapter: Schema<"AdapterSummary">, activity: Activity | undefined): Usage {
  const versions = activity?.byName.get(adapter.name) ?? [];
  const tiers = [...versions.map(({ tier }) => tier), activity?.tierOf(adapter.latest.digest) ?? null];
  return {
    tier: FASTEST.find((tier) => tiers.includes(tier)) ?? null,
    requests: versions.reduce((sum, { requests }) => sum + requests, 0),
    errors: versions.reduce((sum, { errors }) => sum + errors, 0),
    p50: versions[0]?.p50_seconds ?? null,
    p99: versions[0]?.p99_seconds ?? null,
  };
}
