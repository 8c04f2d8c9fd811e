// What happened between two snapshots of one replica.
import type { Schema } from "@/api/server";
import { meanOf, quantileOf, since } from "./distribution";

export type Snapshot = Schema<"LiveSnapshot">;
type Adapter = Schema<"LiveAdapter">;
type Rates = Readonly<Record<string, number>>;

/** What one adapter version did in the time before a point. */
export interface AdapterRate {
  /** Requests a second. */
  rate: number;
  /** The share of requests whose status is 424 or from 500. */
  failing: number;
  p50: number | null;
  p99: number | null;
}

/** Rates are per second, times in seconds, shares from 0 to 1. Null stands for a mean or a percentile of nothing. */
export interface Point {
  /** The end of the time, in milliseconds. */
  at: number;
  requestsByTenant: Rates;
  adapters: Readonly<Record<string, AdapterRate>>;
  failing: number;
  p50: number | null;
  p90: number | null;
  p99: number | null;
  waitP99: number | null;
  queueTokens: number;
  queueRows: number;
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

const FAILED = (code: string) => code === "424" || code >= "500";

/** The point of the time between two snapshots; null if the server was started between them, because its counters began
    again. */
export function pointBetween(before: Snapshot, after: Snapshot): Point | null {
  const seconds = (Date.parse(after.at) - Date.parse(before.at)) / 1000;
  if (before.started_at !== after.started_at || !(seconds > 0)) return null;
  const perSecond = (count: number) => count / seconds;
  const tenants = byName(before.tenants, after.tenants, (one) => one.tenant);
  const latency = since(before.seconds, after.seconds);
  const rows = since(before.batches.rows, after.batches.rows);
  const fill = meanOf(since(before.batches.tokens, after.batches.tokens));
  return {
    at: Date.parse(after.at),
    requestsByTenant: mapped(tenants, ([old, now]) => perSecond(sum(now.requests) - sum(old?.requests ?? {}))),
    adapters: adapterRates(before, after, seconds),
    failing: perSecond(
      Object.values(tenants).reduce(
        (all, [old, now]) => all + failures(now.requests) - failures(old?.requests ?? {}),
        0,
      ),
    ),
    p50: quantileOf(latency, 0.5),
    p90: quantileOf(latency, 0.9),
    p99: quantileOf(latency, 0.99),
    waitP99: quantileOf(since(before.queue.seconds, after.queue.seconds), 0.99),
    queueTokens: after.queue.tokens,
    queueRows: after.queue.rows,
    rowsPerBatch: meanOf(rows),
    adaptersPerBatch: meanOf(since(before.batches.adapters, after.batches.adapters)),
    fill: fill === null ? null : fill / after.batches.max_tokens,
    batches: perSecond(rows.counts.reduce((all, count) => all + count, 0)),
    tokens: perSecond(Object.values(tenants).reduce((all, [old, now]) => all + now.tokens - (old?.tokens ?? 0), 0)),
    generated: perSecond(after.texts.tokens - before.texts.tokens),
    evictions: mapped(
      byName(before.tiers, after.tiers, (tier) => tier.tier),
      ([old, now]) => perSecond(now.evictions - (old?.evictions ?? 0)),
    ),
    residents: Object.fromEntries(after.tiers.map((tier) => [tier.tier, tier.adapters])),
    loads: perSecond(after.loads - before.loads),
  };
}

/** `task@3`, with the tenant in front of it unless it is the default one. */
export function adapterName({ tenant, adapter, version }: Adapter): string {
  if (version === "other") return "all others";
  return `${tenant === "default" ? "" : `${tenant}:`}${adapter}@${version}`;
}

function adapterRates(before: Snapshot, after: Snapshot, seconds: number): Point["adapters"] {
  return mapped(byName(before.adapters, after.adapters, adapterName), ([old, now]) => {
    // A version whose metrics began again counts from 0.
    const past = old !== undefined && sum(old.requests) <= sum(now.requests) ? old : undefined;
    const requests = sum(now.requests) - sum(past?.requests ?? {});
    const failed = failures(now.requests) - failures(past?.requests ?? {});
    const latency = past ? since(past.seconds, now.seconds) : now.seconds;
    return {
      rate: requests / seconds,
      failing: requests > 0 ? failed / requests : 0,
      p50: quantileOf(latency, 0.5),
      p99: quantileOf(latency, 0.99),
    };
  });
}

function byName<One>(before: One[], after: One[], name: (one: One) => string): Record<string, [One | undefined, One]> {
  const old = new Map(before.map((one) => [name(one), one]));
  return Object.fromEntries(after.map((one) => [name(one), [old.get(name(one)), one]]));
}

function mapped<From, To>(values: Record<string, From>, to: (value: From) => To): Record<string, To> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, to(value)]));
}

function sum(counts: Rates): number {
  return Object.values(counts).reduce((all, count) => all + count, 0);
}

function failures(counts: Rates): number {
  return Object.entries(counts).reduce((all, [code, count]) => all + (FAILED(code) ? count : 0), 0);
}
