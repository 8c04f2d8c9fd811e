import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import { Time } from "@/widgets/time/Time";
import { KeyState } from "./KeyState";

export type Key = Schema<"KeyInfo">;

interface Props {
  keys: readonly Key[];
  onRevoke: (prefix: string) => void;
  onEnd: () => void;
}

const MAX_HEIGHT = 420;

/** Keys without their secrets. */
export function KeyTable({ keys, onRevoke, onEnd }: Props) {
  const columns: readonly Column<Key>[] = [
    { id: "prefix", header: "Key", width: 110, namesRow: true, cell: ({ prefix }) => <code>{prefix}…</code> },
    { id: "state", header: "State", width: 180, cell: (key) => <KeyState apiKey={key} /> },
    { id: "scopes", header: "Scopes", width: 170, cell: ({ scopes }) => scopes.join(", ") },
    { id: "note", header: "Note", width: 130, grows: true, cell: ({ note }) => <span title={note}>{note}</span> },
    {
      id: "created",
      header: "Created",
      width: 140,
      cell: ({ created_at }) => <Time value={created_at} isRelative />,
      sortBy: ({ created_at }) => created_at,
    },
    {
      id: "revoke",
      header: "",
      width: 112,
      align: "end",
      cell: ({ prefix, revoked_at }) =>
        revoked_at === null && (
          <Button kind="quiet" onClick={() => onRevoke(prefix)} aria-label={`Revoke ${prefix}`}>
            Revoke
          </Button>
        ),
    },
  ];
  return (
    <DataTable
      label="Keys"
      columns={columns}
      rows={keys}
      rowKey={({ prefix }) => prefix}
      onEnd={onEnd}
      maxHeight={MAX_HEIGHT}
    />
  );
}
