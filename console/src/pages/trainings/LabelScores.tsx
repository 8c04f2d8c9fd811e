import { useMemo } from "react";
import { Figure } from "@/widgets/figure/Figure";
import { significant, whole } from "@/widgets/format/numbers";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import type { LabelScore } from "./report";

const MAX_HEIGHT = 380;

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
  number("rows", "Rows", ({ rows }) => rows, whole),
  number("precision", "Precision", ({ precision }) => precision, significant),
  number("recall", "Recall", ({ recall }) => recall, significant),
  number("f1", "F1", ({ f1 }) => f1, significant),
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

function number(
  id: string,
  header: string,
  value: (score: LabelScore) => number | null,
  format: (value: number) => string,
): Column<LabelScore> {
  const cell = (score: LabelScore) => {
    const found = value(score);
    return found === null ? "–" : format(found);
  };
  return { id, header, width: 84, align: "end", cell, sortBy: (score) => value(score) ?? -1 };
}
