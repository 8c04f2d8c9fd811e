// What happened between two snapshots of a server.
import { countOf, distributionOf, distributionsBy, meanOf, quantileOf, since, totalOf, totalsBy } from "./page";
import { adapterName, type Snapshot, tierOf } from "./snapshot";

type Rates = ReadonlyMap<string, number>;

/** What one adapter version did in the time before a point. */
export interface AdapterRate {
  /** Requests a second. */
  rate: number;
  /** The share of requests whose status is 424 or from 500. */
  failing: number;
  /** Coarse, because the histogram of a version has seven bounds. */
  p50: number | null;
  p99: number | null;
}

/** Rates are per second, times in seconds, shares from 0 to 1. Null stands for a mean or a percentile of nothing. */
export interface Point {
  /** The end of the time, in milliseconds. */
  at: number;
  requestsByTenant: Rates;
  adapters: ReadonlyMap<string, AdapterRate>;
  failing: number;
  p50: number | null;
  p90: number | null;
  p99: number | null;
  waitP99: number | null;
  queueTokens: number;
  rowsPerBatch: number | null;
  adaptersPerBatch: number | null;
  /** Tokens of a batch as a share of the most that it may have. */
  fill: number | null;
  batches: number;
  tokens: number;
  generated: number;
  evictions: Rates;
  residents: Rates;
  loads: number;
}

function isFailure(code = ""): boolean {
  return code === "424" || code >= "500";
}

/** The point of the time between two snapshots; null if they are not of the same processes: a server was started, or a
    replica joined, and their counters have nothing in common. */
export function pointBetween(before: Snapshot, after: Snapshot): Point | null {
  const seconds = (after.at - before.at) / 1000;
  if (before.starts !== after.starts || !(seconds > 0)) return null;
  const added = since(before.page, after.page);
  const perSecond = (counts: Rates) => new Map(Array.from(counts, ([name, count]) => [name, count / seconds]));
  const rateOf = (name: string) => totalOf(added, name) / seconds;
  const latency = distributionOf(added, "peltier_request_seconds");
  const rows = distributionOf(added, "peltier_batch_rows");
  const tokens = meanOf(distributionOf(added, "peltier_batch_tokens"));
  const maxTokens = totalOf(after.page, "peltier_batch_max_tokens") / after.numReplicas;
  const failed = totalsBy(added, "peltier_requests_total", ({ code }) => (isFailure(code) ? "all" : undefined));
  return {
    at: after.at,
    requestsByTenant: perSecond(totalsBy(added, "peltier_requests_total", ({ tenant }) => tenant)),
    adapters: adapterRates(added, seconds),
    failing: (failed.get("all") ?? 0) / seconds,
    p50: quantileOf(latency, 0.5),
    p90: quantileOf(latency, 0.9),
    p99: quantileOf(latency, 0.99),
    waitP99: quantileOf(distributionOf(added, "peltier_queue_seconds"), 0.99),
    queueTokens: after.queueTokens,
    rowsPerBatch: meanOf(rows),
    adaptersPerBatch: meanOf(distributionOf(added, "peltier_batch_adapters")),
    fill: tokens === null ? null : tokens / maxTokens,
    batches: countOf(rows) / seconds,
    tokens: rateOf("peltier_tenant_served_tokens_total"),
    generated: rateOf("peltier_generated_tokens_total"),
    evictions: perSecond(totalsBy(added, "peltier_adapter_evictions_total", tierOf)),
    residents: new Map(after.tiers.map((tier) => [tier.name, tier.adapters])),
    loads: rateOf("peltier_adapter_loads_total"),
  };
}

function adapterRates(added: Snapshot["page"], seconds: number): Point["adapters"] {
  const requests = totalsBy(added, "peltier_adapter_requests_total", adapterName);
  const failed = totalsBy(added, "peltier_adapter_requests_total", (labels) =>
    isFailure(labels.code) ? adapterName(labels) : undefined,
  );
  const latencies = distributionsBy(added, "peltier_adapter_request_seconds", adapterName);
  return new Map(
    Array.from(latencies, ([name, latency]) => {
      const answered = requests.get(name) ?? 0;
      return [
        name,
        {
          rate: answered / seconds,
          failing: answered > 0 ? (failed.get(name) ?? 0) / answered : 0,
          p50: quantileOf(latency, 0.5),
          p99: quantileOf(latency, 0.99),
        },
      ];
    }),
  );
}
