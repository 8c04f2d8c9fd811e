// What a server holds now, and has counted since its start.
import { type Page, parsePage, type Sample, totalOf, totalsBy } from "./page";

export interface Tier {
  name: string;
  adapters: number;
  bytes: number;
  maxBytes: number;
  evictions: number;
}

export interface Snapshot {
  /** When it was read, in milliseconds. */
  at: number;
  page: Page;
  /** When the processes of the server were started. */
  starts: string;
  /** When the last of them was, in milliseconds. */
  startedAt: number;
  numReplicas: number;
  numReady: number;
  queueTokens: number;
  restarts: number;
  /** How many versions are in quarantine, by name; nearly always one each. */
  quarantined: ReadonlyMap<string, number>;
  tiers: readonly Tier[];
  /** Where adapters in demand were found: device, host or store. */
  lookups: ReadonlyMap<string, number>;
  loads: number;
}

export function snapshotOf(text: string, at: number): Snapshot {
  const page = parsePage(text);
  const bytes = totalsBy(page, "peltier_adapter_bytes", tierOf);
  const adapters = totalsBy(page, "peltier_adapters", tierOf);
  const evictions = totalsBy(page, "peltier_adapter_evictions_total", tierOf);
  const bounds = totalsBy(page, "peltier_adapter_max_bytes", tierOf);
  const starts = page.get("process_start_time_seconds") ?? [];
  return {
    at,
    page,
    starts: JSON.stringify(starts),
    startedAt: 1000 * Math.max(...starts.map(({ value }) => value)),
    numReplicas: page.get("peltier_ready")?.length ?? 0,
    numReady: totalOf(page, "peltier_ready"),
    queueTokens: totalOf(page, "peltier_queue_tokens"),
    restarts: totalOf(page, "peltier_runner_restarts_total"),
    quarantined: new Map(
      Array.from(totalsBy(page, "peltier_quarantined_adapters", adapterName)).filter(([, count]) => count > 0),
    ),
    tiers: Array.from(bounds, ([name, maxBytes]) => ({
      name,
      adapters: adapters.get(name) ?? 0,
      bytes: bytes.get(name) ?? 0,
      maxBytes,
      evictions: evictions.get(name) ?? 0,
    })),
    lookups: totalsBy(page, "peltier_adapter_cache_requests_total", ({ result }) => result),
    loads: totalOf(page, "peltier_adapter_loads_total"),
  };
}

export function tierOf({ tier }: Sample["labels"]): string | undefined {
  return tier;
}

/** `task@3`, with the tenant in front of it unless it is the default one. */
export function adapterName({ tenant, adapter, version }: Sample["labels"]): string {
  if (version === "other") return "all others";
  return `${tenant === "default" ? "" : `${tenant}:`}${adapter}@${version}`;
}
