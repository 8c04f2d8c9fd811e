import { Link } from "wouter";
import type { Schema } from "@/api/server";
import { Badge } from "@/widgets/badge/Badge";
import { bytes, percent, whole } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { numberColumn } from "@/widgets/table/numberColumn";
import { Time } from "@/widgets/time/Time";
import styles from "./index.module.css";

type Row = Schema<"AdapterSummary">;

/** The columns of the list. Only a list that is complete can be sorted. */
export function adapterColumns(isComplete: boolean): Column<Row>[] {
  const columns = [...ofManifest(), ...ofVersions()];
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
    numberColumn("size", "Size", 84, (row) => row.latest.size_bytes, bytes),
  ];
}

function ofVersions(): Column<Row>[] {
  return [
    numberColumn("versions", "Versions", 84, (row) => row.num_versions, whole),
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

/** “v3”, or “v3 90 % · v4 10 %”. */
function splitText(split: Row["live"] = {}): string {
  const shares = Object.entries(split).sort(([, one], [, other]) => other - one);
  if (shares.length === 1) return `v${shares[0]?.[0]}`;
  return shares.map(([version, share]) => `v${version} ${percent(share, 0)}`).join(" · ");
}

function aliasText(aliases: Row["aliases"] = []) {
  return <span title={aliases.join(", ")}>{aliases.join(", ") || "–"}</span>;
}
