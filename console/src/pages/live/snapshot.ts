// What a server holds now, and has counted since its start.
import { type Page, parsePage, totalOf, totalsBy } from "./page";

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
  numReplicas: number;
  numReady: number;
  queueTokens: number;
  restarts: number;
  quarantined: number;
  tiers: readonly Tier[];
  /** Where adapters in demand were found: device, host or store. */
  lookups: Readonly<Record<string, number>>;
  loads: number;
}

export function snapshotOf(text: string, at: number): Snapshot {
  const page = parsePage(text);
  const bytes = totalsBy(page, "peltier_adapter_bytes", tierOf);
  const adapters = totalsBy(page, "peltier_adapters", tierOf);
  const evictions = totalsBy(page, "peltier_adapter_evictions_total", tierOf);
  const bounds = totalsBy(page, "peltier_adapter_max_bytes", tierOf);
  return {
    at,
    page,
    starts: JSON.stringify(page.get("process_start_time_seconds")),
    numReplicas: page.get("peltier_ready")?.length ?? 0,
    numReady: totalOf(page, "peltier_ready"),
    queueTokens: totalOf(page, "peltier_queue_tokens"),
    restarts: totalOf(page, "peltier_runner_restarts_total"),
    quarantined: totalOf(page, "peltier_quarantined_adapters"),
    tiers: Object.entries(bounds).map(([name, maxBytes]) => ({
      name,
      adapters: adapters[name] ?? 0,
      bytes: bytes[name] ?? 0,
      maxBytes,
      evictions: evictions[name] ?? 0,
    })),
    lookups: totalsBy(page, "peltier_adapter_cache_requests_total", ({ result }) => result),
    loads: totalOf(page, "peltier_adapter_loads_total"),
  };
}

export function tierOf({ tier }: Readonly<Record<string, string>>): string | undefined {
  return tier;
}
