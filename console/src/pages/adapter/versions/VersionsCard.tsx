import { useMemo, useState } from "react";
import type { Schema } from "@/api/server";
import { Card } from "@/widgets/card/Card";
import { DataTable } from "@/widgets/table/DataTable";
import { useDeletion } from "../useDeletion";
import { versionColumns } from "./columns";
import { DeprecationDialog } from "./DeprecationDialog";

interface Props {
  adapter: Schema<"Adapter">;
  versions: readonly Schema<"VersionSummary">[];
  shown: number;
  onShow: (version: number) => void;
}

/** The versions, newest first. */
export function VersionsCard({ adapter, versions, shown, onShow }: Props) {
  const [deprecated, setDeprecated] = useState<Schema<"VersionSummary"> | null>(null);
  const { removeVersion } = useDeletion(adapter.name);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the functions only start requests.
  const columns = useMemo(
    () => versionColumns({ adapter, shown, onShow, onDeprecate: setDeprecated, onDelete: removeVersion }),
    [adapter, shown],
  );
  return (
    <Card title="Versions">
      <DataTable
        label="Versions"
        columns={columns}
        rows={versions}
        rowKey={(row) => String(row.version)}
        maxHeight={320}
      />
      {deprecated && <DeprecationDialog name={adapter.name} version={deprecated} onClose={() => setDeprecated(null)} />}
    </Card>
  );
}
