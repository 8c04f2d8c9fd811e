import { describe, expect, test } from "vitest";
import { quantileOf } from "./distribution";
import { pointBetween, type Snapshot } from "./point";
import { topLines } from "./series";

const none = { bounds: [1, 2], counts: [0, 0, 0], total: 0 };

function snapshot(at: number, change: Partial<Snapshot> = {}): Snapshot {
  return {
    at: new Date(at).toISOString(),
    started_at: "2026-11-21T00:00:00Z",
    ready: true,
    reason: null,
    runner: { state: "well", restarts: 0 },
    seconds: none,
    tenants: [],
    adapters: [],
    queue: { rows: 0, tokens: 0, max_tokens: 100, seconds: none },
    batches: { rows: none, tokens: none, adapters: none, seconds: none, max_rows: 8, max_tokens: 10 },
    texts: { tokens: 0, step_seconds: none, rows: 0 },
    tiers: [],
    lookups: {},
    loads: 0,
    uploads: {},
    quarantined: 0,
    quarantine: [],
    ...change,
  };
}

const tenant = (requests: Record<string, number>, tokens = 0) => ({
  tenant: "acme",
  requests,
  rows: 0,
  tokens,
  queued_tokens: 0,
  open_requests: 0,
});
const version = (requests: Record<string, number>, counts: number[]) => ({
  tenant: "acme",
  adapter: "a",
  version: "1",
  requests,
  seconds: { bounds: [1, 2], counts, total: 0 },
});

describe("a point", () => {
  test("has the rates between two snapshots", () => {
    const point = pointBetween(
      snapshot(0, { tenants: [tenant({ "200": 4 }, 10)], adapters: [version({ "200": 4 }, [4, 0, 0])] }),
      snapshot(2_000, {
        tenants: [tenant({ "200": 8, "503": 2 }, 50)],
        adapters: [version({ "200": 8, "424": 4 }, [4, 8, 0])],
        batches: { ...snapshot(0).batches, tokens: { bounds: [1, 2], counts: [0, 0, 2], total: 10 } },
      }),
    );
    expect(point?.requestsByTenant).toEqual({ acme: 3 });
    expect(point?.failing).toBe(1);
    expect(point?.tokens).toBe(20);
    expect(point?.fill).toBe(0.5);
    expect(point?.adapters).toEqual({ "acme:a@1": { rate: 4, failing: 0.5, p50: 1.5, p99: 1.99 } });
    expect(point?.p50).toBeNull();
  });

  test("does not cross a start of the server", () => {
    expect(pointBetween(snapshot(0), snapshot(2_000, { started_at: "2026-11-21T01:00:00Z" }))).toBeNull();
  });

  test("counts a version whose metrics began again from 0", () => {
    const point = pointBetween(
      snapshot(0, { adapters: [version({ "200": 9 }, [9, 0, 0])] }),
      snapshot(1_000, { adapters: [version({ "200": 2 }, [2, 0, 0])] }),
    );
    expect(point?.adapters["acme:a@1"]?.rate).toBe(2);
  });
});

test("a quantile above all bounds is the last bound, and one of nothing is none", () => {
  expect(quantileOf({ bounds: [1, 2], counts: [0, 0, 5], total: 50 }, 0.5)).toBe(2);
  expect(quantileOf(none, 0.5)).toBeNull();
});

test("the smallest lines are one", () => {
  const rates = Object.fromEntries(Array.from({ length: 10 }, (_, number) => [`t${number}`, 10 - number]));
  const point = { ...pointBetween(snapshot(0), snapshot(1_000)), requestsByTenant: rates } as never;
  const lines = topLines([point], ({ requestsByTenant }) => requestsByTenant);
  expect(lines.map(({ name }) => name)).toEqual(["t0", "t1", "t2", "t3", "t4", "t5", "t6", "the rest"]);
  expect(lines.at(-1)?.value(point)).toBe(6);
});
