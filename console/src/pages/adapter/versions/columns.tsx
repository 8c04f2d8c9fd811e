import type { Schema } from "@/api/server";
import { Badge } from "@/widgets/badge/Badge";
import { Button } from "@/widgets/button/Button";
import { Digest } from "@/widgets/digest/Digest";
import { bytes, percent } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { numberColumn } from "@/widgets/table/numberColumn";
import { Time } from "@/widgets/time/Time";
import styles from "./versions.module.css";

type Row = Schema<"VersionSummary">;

interface Options {
  adapter: Schema<"Adapter">;
  shown: number;
  onShow: (version: number) => void;
  onDeprecate: (version: Row) => void;
  onDelete: (version: number) => void;
}

export function versionColumns({ adapter, shown, onShow, onDeprecate, onDelete }: Options): Column<Row>[] {
  return [
    {
      id: "version",
      header: "Version",
      width: 76,
      namesRow: true,
      cell: (row) => (
        <button
          type="button"
          className={styles.version}
          aria-pressed={row.version === shown}
          onClick={() => onShow(row.version)}
        >
          v{row.version}
        </button>
      ),
    },
    { id: "state", header: "Live", width: 150, cell: (row) => <State row={row} live={adapter.live ?? {}} /> },
    { id: "created", header: "Created", width: 110, cell: (row) => <Time value={row.created_at} isRelative /> },
    {
      id: "by",
      header: "By",
      width: 90,
      grows: true,
      cell: (row) => <span title={row.created_by}>{row.created_by || "–"}</span>,
    },
    numberColumn("size", "Size", 92, (row) => row.size_bytes, bytes),
    { id: "digest", header: "Digest", width: 192, cell: (row) => <Digest value={row.digest} /> },
    {
      id: "actions",
      header: "Actions",
      width: 214,
      cell: (row) => (
        <>
          <Button kind="quiet" onClick={() => onDeprecate(row)}>
            {row.deprecation ? "Undeprecate" : "Deprecate"}
          </Button>
          <Button kind="quiet" onClick={() => onDelete(row.version)} aria-label={`Delete version ${row.version}`}>
            Delete
          </Button>
        </>
      ),
    },
  ];
}

function State({ row, live }: { row: Row; live: Record<string, number> }) {
  const share = live[row.version];
  return (
    <>
      {share !== undefined && <Badge tone="good">{percent(share, 1)}</Badge>}{" "}
      {row.deprecation && (
        <Badge tone="warn" title={row.deprecation}>
          deprecated
        </Badge>
      )}
    </>
  );
}
