import { useMemo } from "react";
import { Figure } from "@/widgets/figure/Figure";
import { significant, whole } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import { numberColumn } from "@/widgets/table/numberColumn";
import type { LabelScore } from "./report";

const MAX_HEIGHT = 380;
const WIDTH = 84;

const COLUMNS: readonly Column<LabelScore>[] = [
  {
    id: "label",
    header: "Label",
    width: 150,
    grows: true,
    namesRow: true,
    cell: ({ label }) => label,
    sortBy: ({ label }) => label,
  },
  numberColumn("rows", "Rows", WIDTH, ({ rows }) => rows, whole),
  numberColumn("precision", "Precision", WIDTH, ({ precision }) => precision, significant),
  numberColumn("recall", "Recall", WIDTH, ({ recall }) => recall, significant),
  numberColumn("f1", "F1", WIDTH, ({ f1 }) => f1, significant),
];

/** Precision, recall and F1 of each label, the weakest first. */
export function LabelScores({ scores }: { scores: readonly LabelScore[] }) {
  const rows = useMemo(() => [...scores].sort((a, b) => (a.f1 ?? 2) - (b.f1 ?? 2)), [scores]);
  return (
    <Figure title="Labels, the weakest first" isWide>
      <DataTable
        label="Scores of labels"
        columns={COLUMNS}
        rows={rows}
        rowKey={({ label }) => label}
        maxHeight={MAX_HEIGHT}
      />
    </Figure>
  );
}
