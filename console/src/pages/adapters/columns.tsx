import { Link } from "wouter";
import type { Activity } from "@/api/activity";
import type { Schema } from "@/api/server";
import { Badge } from "@/widgets/badge/Badge";
import { bytes, duration, percent, whole } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { TierBadge } from "@/widgets/tier/TierBadge";
import { Time } from "@/widgets/time/Time";
import styles from "./index.module.css";
import { type Usage, usageOf } from "./usage";

type Row = Schema<"AdapterSummary">;

/** The columns of the list. Only a list that is complete can be sorted. */
export function adapterColumns(activity: Activity | undefined, isComplete: boolean): Column<Row>[] {
  const usage = (row: Row) => usageOf(row, activity);
  const columns = [...ofManifest(), ...ofVersions(), ...ofUsage(usage)];
  return isComplete ? columns : columns.map((column) => ({ ...column, sortBy: undefined }));
}

function ofManifest(): Column<Row>[] {
  return [
    {
      id: "name",
      header: "Name",
      width: 170,
      grows: true,
      namesRow: true,
      cell: (row) => (
        <>
          <Link href={`/adapters/${row.name}`} className={styles.name} title={row.name}>
            {row.name}
          </Link>{" "}
          {row.public && <Badge>public</Badge>}
        </>
      ),
      sortBy: (row) => row.name,
    },
    {
      id: "task",
      header: "Task",
      width: 126,
      cell: (row) => row.latest.task.type,
      sortBy: (row) => row.latest.task.type,
    },
    {
      id: "preset",
      header: "Preset",
      width: 108,
      cell: (row) => row.latest.preset,
      sortBy: (row) => row.latest.preset,
    },
    {
      id: "size",
      header: "Size",
      width: 84,
      align: "end",
      cell: (row) => bytes(row.latest.size_bytes),
      sortBy: (row) => row.latest.size_bytes,
    },
  ];
}

function ofVersions(): Column<Row>[] {
  return [
    {
      id: "versions",
      header: "Versions",
      width: 84,
      align: "end",
      cell: (row) => row.num_versions,
      sortBy: (row) => row.num_versions,
    },
    {
      id: "live",
      header: "Live",
      width: 150,
      cell: (row) => splitText(row.live),
      sortBy: (row) => splitText(row.live),
    },
    { id: "aliases", header: "Aliases", width: 124, cell: (row) => aliasText(row.aliases) },
    {
      id: "created",
      header: "Newest",
      width: 112,
      cell: (row) => <Time value={row.latest.created_at} isRelative />,
      sortBy: (row) => row.latest.created_at,
    },
  ];
}

function ofUsage(usage: (row: Row) => Usage): Column<Row>[] {
  const quantile = (id: "p50" | "p99"): Column<Row> => ({
    id,
    header: id,
    width: 84,
    align: "end",
    cell: (row) => shownDuration(usage(row)[id]),
    sortBy: (row) => usage(row)[id] ?? -1,
  });
  return [
    {
      id: "tier",
      header: "Tier",
      width: 80,
      cell: (row) => <TierBadge tier={usage(row).tier} />,
      sortBy: (row) => usage(row).tier ?? "",
    },
    {
      id: "requests",
      header: "Requests",
      width: 84,
      align: "end",
      cell: (row) => whole(usage(row).requests),
      sortBy: (row) => usage(row).requests,
    },
    quantile("p50"),
    quantile("p99"),
    {
      id: "errors",
      header: "Errors",
      width: 76,
      align: "end",
      cell: (row) => <Errors count={usage(row).errors} />,
      sortBy: (row) => usage(row).errors,
    },
  ];
}

function Errors({ count }: { count: number }) {
  return <span className={count > 0 ? styles.errors : styles.number}>{whole(count)}</span>;
}

function shownDuration(seconds: number | null): string {
  return seconds === null ? "–" : duration(seconds);
}

/** “v3”, or “v3 90 % · v4 10 %”. */
function splitText(split: Row["live"] = {}): string {
  const shares = Object.entries(split).sort(([, one], [, other]) => other - one);
  if (shares.length === 1) return `v${shares[0]?.[0]}`;
  return shares.map(([version, share]) => `v${version} ${percent(share, 0)}`).join(" · ");
}

function aliasText(aliases: Row["aliases"] = []) {
  return <span title={aliases.join(", ")}>{aliases.join(", ") || "–"}</span>;
}
