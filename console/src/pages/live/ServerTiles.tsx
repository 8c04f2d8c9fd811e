import { Badge } from "@/widgets/badge/Badge";
import { compact, counted, duration, percent, significant } from "@/widgets/format/numbers";
import { Tile, Tiles } from "@/widgets/tile/Tile";
import type { Point } from "./point";
import type { Snapshot } from "./snapshot";

interface Props {
  snapshot: Snapshot;
  /** The newest point; undefined until there are two snapshots. */
  point: Point | undefined;
  /** The server does not answer, so that the numbers are old. */
  isLost: boolean;
}

/** The state of the server now, in a row of numbers. */
export function ServerTiles({ snapshot, point, isLost }: Props) {
  const rate = point && sumOf(point.requestsByTenant.values());
  const { restarts, queueTokens, quarantined, numReady, numReplicas } = snapshot;
  const numQuarantined = sumOf(quarantined.values());
  return (
    <Tiles>
      <Tile
        name="Server"
        value={isLost ? <Badge tone="bad">no answer</Badge> : <State snapshot={snapshot} />}
        note={numReplicas > 1 ? `${numReady} of ${numReplicas} replicas` : undefined}
      />
      <Tile name="Requests" value={perSecond(rate)} note={point && `${significant(point.failing)} failing/s`} />
      <Tile name="Latency p50" value={seconds(point?.p50)} note={`p99 ${seconds(point?.p99)}`} />
      <Tile name="Queue" value={counted(queueTokens, "token", compact)} note={`p99 wait ${seconds(point?.waitP99)}`} />
      <Tile
        name="Batch fill"
        value={point?.fill == null ? "–" : percent(point.fill)}
        note={`${mean(point?.rowsPerBatch, "row")} · ${mean(point?.adaptersPerBatch, "adapter")}`}
      />
      <Tile
        name="Tokens"
        value={perSecond(point?.tokens)}
        note={point && `${significant(point.generated)} generated/s`}
      />
      <Tile
        name="Runner"
        value={restarts === 0 ? "well" : <Badge tone="bad">{counted(restarts, "restart")}</Badge>}
        note={restarts === 0 ? undefined : "since the start"}
      />
      <Tile
        name="Quarantine"
        value={numQuarantined === 0 ? "none" : <Badge tone="bad">{numQuarantined}</Badge>}
        note={Array.from(quarantined.keys()).join(", ") || undefined}
      />
    </Tiles>
  );
}

function State({ snapshot }: { snapshot: Snapshot }) {
  return snapshot.numReplicas > 0 && snapshot.numReady === snapshot.numReplicas ? (
    <Badge tone="good">ready</Badge>
  ) : (
    <Badge tone="bad">not ready</Badge>
  );
}

function sumOf(counts: Iterable<number>): number {
  return Array.from(counts).reduce((all, one) => all + one, 0);
}

function perSecond(rate: number | undefined): string {
  return rate === undefined ? "–" : `${rate >= 1000 ? compact(rate) : significant(rate)}/s`;
}

function seconds(value: number | null | undefined): string {
  return value == null ? "–" : duration(value);
}

function mean(value: number | null | undefined, noun: string): string {
  return value == null ? `– ${noun}s` : counted(value, noun, significant);
}
