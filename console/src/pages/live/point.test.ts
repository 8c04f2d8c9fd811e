import { describe, expect, test } from "vitest";
import { parsePage, quantileOf } from "./page";
import { pointBetween } from "./point";
import { topLines } from "./series";
import { snapshotOf } from "./snapshot";

const VERSION = 'tenant="acme",adapter="a",version="1"';

/** The page of a server that has answered so often with each status, `counts` of them up to 1 s, 2 s and any time. */
function page(answers: Record<string, number>, counts: readonly number[], start = 5): string {
  return [
    "# TYPE peltier_ready gauge",
    "peltier_ready 1.0",
    `process_start_time_seconds ${start}`,
    "peltier_batch_max_tokens 10.0",
    ...Object.entries(answers).flatMap(([code, count]) => [
      `peltier_requests_total{tenant="acme",code="${code}"} ${count}`,
      `peltier_adapter_requests_total{${VERSION},code="${code}"} ${count}`,
    ]),
    ...["1.0", "2.0", "+Inf"].map(
      (le, place) => `peltier_adapter_request_seconds_bucket{${VERSION},le="${le}"} ${counts[place]}`,
    ),
    `peltier_adapter_request_seconds_sum{${VERSION}} 3.0`,
  ].join("\n");
}

describe("a point", () => {
  const before = page({ "200": 4 }, [4, 4, 4]);

  test("has the rates between two snapshots", () => {
    const after = `${page({ "200": 8, "424": 4 }, [4, 12, 12])}
peltier_tenant_served_tokens_total{tenant="acme"} 4e+01
peltier_batch_tokens_bucket{le="+Inf"} 2.0
peltier_batch_tokens_sum 10.0`;
    const point = pointBetween(snapshotOf(before, 0), snapshotOf(after, 2_000));
    expect(point?.requestsByTenant).toEqual(new Map([["acme", 4]]));
    expect(point?.failing).toBe(2);
    expect(point?.tokens).toBe(20);
    expect(point?.fill).toBe(0.5);
    expect(point?.adapters).toEqual(new Map([["acme:a@1", { rate: 4, failing: 0.5, p50: 1.5, p99: 1.99 }]]));
    expect(point?.p50).toBeNull();
  });

  test("does not cross a start of the server", () => {
    expect(pointBetween(snapshotOf(before, 0), snapshotOf(page({}, [0, 0, 0], 6), 2_000))).toBeNull();
  });

  test("does not count what a replica that joins has counted before", () => {
    const replica = (name: string) =>
      `process_start_time_seconds{replica="${name}"} 5\npeltier_requests_total{replica="${name}",tenant="a"} 5e+06`;
    const [one, both] = [replica("one"), `${replica("one")}\n${replica("two")}`];
    expect(pointBetween(snapshotOf(one, 0), snapshotOf(both, 2_000))).toBeNull();
    const next = pointBetween(snapshotOf(both, 2_000), snapshotOf(both, 4_000));
    expect(next?.requestsByTenant).toEqual(new Map([["a", 0]]));
  });

  test("has tenants of any name", () => {
    const rates = ["constructor", "__proto__"].map((tenant) => [tenant, 2] as const);
    const text = rates.map(([tenant]) => `peltier_requests_total{tenant="${tenant}"} 4`).join("\n");
    expect(pointBetween(snapshotOf("", 0), snapshotOf(text, 2_000))?.requestsByTenant).toEqual(new Map(rates));
  });

  test("counts a version whose metrics began again from 0", () => {
    const after = page({ "200": 2 }, [1, 2, 2]);
    const point = pointBetween(snapshotOf(before, 0), snapshotOf(after, 1_000));
    expect(point?.adapters.get("acme:a@1")).toEqual({ rate: 2, failing: 0, p50: 1, p99: 1.98 });
  });
});

test("versions in quarantine are named", () => {
  const text = `peltier_quarantined_adapters{${VERSION}} 1
peltier_quarantined_adapters{tenant="other",adapter="other",version="other"} 0`;
  expect(snapshotOf(text, 0).quarantined).toEqual(new Map([["acme:a@1", 1]]));
});

test("labels have any characters", () => {
  const [sample] = parsePage('a{b="x\\"}, c=",d="{}"} 2.5').get("a") ?? [];
  expect(sample).toEqual({ labels: { b: 'x\\"}, c=', d: "{}" }, value: 2.5 });
});

test("a quantile above all bounds is the last bound, and one of nothing is none", () => {
  expect(quantileOf({ bounds: [1, 2], counts: [0, 0, 5], total: 50 }, 0.5)).toBe(2);
  expect(quantileOf({ bounds: [1, 2], counts: [0, 0, 0], total: 0 }, 0.5)).toBeNull();
});

test("the smallest lines are one", () => {
  const rates = new Map(Array.from({ length: 10 }, (_, number) => [`t${number}`, 10 - number]));
  const point = { ...pointBetween(snapshotOf("", 0), snapshotOf("", 1_000)), requestsByTenant: rates } as never;
  const lines = topLines([point], ({ requestsByTenant }) => requestsByTenant);
  expect(lines.map(({ name }) => name)).toEqual(["t0", "t1", "t2", "t3", "t4", "t5", "t6", "the rest"]);
  expect(lines.at(-1)?.value(point)).toBe(6);
});
