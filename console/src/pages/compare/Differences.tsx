import { useMemo } from "react";
import type { Comparison } from "@/api/comparisons";
import { textsOf } from "@/rows/input";
import { Badge } from "@/widgets/badge/Badge";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import { shownAs } from "./answers";
import styles from "./compare.module.css";
import type { Judged } from "./judge";

interface Props {
  judged: Judged;
  references: readonly [string, string];
}

interface Difference {
  line: number;
  input: string;
  label: string;
  first: string;
  second: string;
  /** The version whose answer is nearer to the label. */
  better: "first" | "second" | null;
}

const TABLE_HEIGHT = 520;

/** The rows that the two versions answer differently. */
export function Differences({ judged, references }: Props) {
  const rows = useMemo(() => judged.comparison.differences.map((row) => difference(judged, row)), [judged]);
  const columns = useMemo(() => columnsOf(references), [references]);
  if (rows.length === 0) return <p>Both give the same answer to every row.</p>;
  return (
    <div className={styles.differences}>
      <h2>Rows that differ</h2>
      <DataTable
        label="Rows that differ"
        columns={columns}
        rows={rows}
        rowKey={({ line }) => String(line)}
        maxHeight={TABLE_HEIGHT}
      />
    </div>
  );
}

function difference({ comparison, asked }: Judged, row: Comparison["differences"][number]): Difference {
  const one = asked[row.row];
  const kind = comparison.task_type;
  return {
    line: one?.line ?? 0,
    input: textsOf(one?.input ?? "").join(" · "),
    label: shownAs(kind, row.label),
    first: shownAs(kind, row.first),
    second: shownAs(kind, row.second),
    better: row.better,
  };
}

function columnsOf([first, second]: readonly [string, string]): Column<Difference>[] {
  const answer = (text: string, isBetter: boolean) => (
    <span title={text}>{isBetter ? <Badge tone="good">{text}</Badge> : text}</span>
  );
  return [
    {
      id: "line",
      header: "Line",
      width: 64,
      align: "end",
      namesRow: true,
      cell: ({ line }) => line,
      sortBy: ({ line }) => line,
    },
    { id: "input", header: "Input", width: 260, grows: true, cell: ({ input }) => <span title={input}>{input}</span> },
    { id: "label", header: "Label", width: 180, cell: ({ label }) => label, sortBy: ({ label }) => label },
    {
      id: "first",
      header: first,
      width: 200,
      cell: ({ first: own, better }) => answer(own, better === "first"),
      sortBy: ({ first: own }) => own,
    },
    {
      id: "second",
      header: second,
      width: 200,
      cell: ({ second: own, better }) => answer(own, better === "second"),
      sortBy: ({ second: own }) => own,
    },
    {
      id: "better",
      header: "Better",
      width: 120,
      cell: ({ better }) => (better === null ? "neither" : better === "first" ? first : second),
      sortBy: ({ better }) => better ?? "",
    },
  ];
}
