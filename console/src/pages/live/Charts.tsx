import { useMemo } from "react";
import { compact, duration, percent, significant } from "@/widgets/format/numbers";
import { LineFigure } from "./LineFigure";
import type { Point } from "./point";
import { type Line, topLines } from "./series";

const LATENCY: readonly Line[] = [
  { name: "p50", value: (point) => point.p50 },
  { name: "p90", value: (point) => point.p90 },
  { name: "p99", value: (point) => point.p99 },
];
const QUEUE: readonly Line[] = [{ name: "tokens", value: (point) => point.queueTokens }];
const FILL: readonly Line[] = [{ name: "fill", value: (point) => point.fill }];
const BATCH: readonly Line[] = [
  { name: "rows", value: (point) => point.rowsPerBatch },
  { name: "adapters", value: (point) => point.adaptersPerBatch },
];
const TOKENS: readonly Line[] = [
  { name: "computed", value: (point) => point.tokens },
  { name: "generated", value: (point) => point.generated },
];
const RESIDENTS: readonly Line[] = [
  { name: "on the device", value: (point) => point.residents.get("device") ?? 0 },
  { name: "in host memory", value: (point) => point.residents.get("host") ?? 0 },
];
const EVICTIONS: readonly Line[] = [
  { name: "from the device", value: (point) => point.evictions.get("device") ?? 0 },
  { name: "from host memory", value: (point) => point.evictions.get("host") ?? 0 },
  { name: "loads", value: (point) => point.loads },
];

/** The lines over time. */
export function Charts({ points }: { points: readonly Point[] }) {
  const byTenant = useMemo(() => topLines(points, (point) => point.requestsByTenant), [points]);
  const byAdapter = useMemo(() => topLines(points, adapterRates), [points]);
  const noBatch = "No batch was computed in this time.";
  return (
    <>
      <LineFigure title="Requests/s by tenant" points={points} lines={byTenant} format={significant} isStacked />
      <LineFigure
        title="Requests/s by adapter"
        points={points}
        lines={byAdapter}
        format={significant}
        isStacked
        empty="No adapter answered in this time."
      />
      <LineFigure title="Latency" points={points} lines={LATENCY} format={duration} />
      <LineFigure title="Tokens in the queue" points={points} lines={QUEUE} format={compact} />
      <LineFigure
        title="Batch fill, share of the tokens that fit"
        points={points}
        lines={FILL}
        format={percent}
        empty={noBatch}
      />
      <LineFigure
        title="Rows and adapters of a batch"
        points={points}
        lines={BATCH}
        format={significant}
        empty={noBatch}
      />
      <LineFigure title="Tokens/s" points={points} lines={TOKENS} format={compact} />
      <LineFigure title="Adapters by tier" points={points} lines={RESIDENTS} format={compact} />
      <LineFigure title="Evictions and loads/s" points={points} lines={EVICTIONS} format={significant} />
    </>
  );
}

function adapterRates({ adapters }: Point): ReadonlyMap<string, number> {
  return new Map(Array.from(adapters, ([name, { rate }]) => [name, rate]));
}
