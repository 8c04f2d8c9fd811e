import { Link } from "wouter";
import type { Schema } from "@/api/server";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import { Time } from "@/widgets/time/Time";
import styles from "./TenantList.module.css";

type Tenant = Schema<"TenantInfo">;

interface Props {
  tenants: readonly Tenant[];
  selected: string | undefined;
  onEnd: () => void;
}

const MAX_HEIGHT = 560;

/** The tenants; the selected one is shown beside them. */
export function TenantList({ tenants, selected, onEnd }: Props) {
  const columns: readonly Column<Tenant>[] = [
    {
      id: "name",
      header: "Tenant",
      width: 140,
      grows: true,
      cell: ({ name }) => (
        <Link
          href={`/tenants?tenant=${encodeURIComponent(name)}`}
          aria-current={name === selected ? "true" : undefined}
          className={styles.name}
        >
          {name}
        </Link>
      ),
      sortBy: ({ name }) => name,
    },
    {
      id: "created",
      header: "Created",
      width: 140,
      cell: ({ created_at }) => <Time value={created_at} isRelative />,
      sortBy: ({ created_at }) => created_at,
    },
  ];
  return (
    <DataTable
      label="Tenants"
      columns={columns}
      rows={tenants}
      rowKey={({ name }) => name}
      onEnd={onEnd}
      maxHeight={MAX_HEIGHT}
    />
  );
}
