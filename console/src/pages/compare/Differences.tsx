import { useMemo } from "react";
import type { Comparison } from "@/quality/comparison";
import type { Case } from "@/quality/judge";
import { textsOf } from "@/rows/input";
import { Badge } from "@/widgets/badge/Badge";
import type { Column } from "@/widgets/table/column";
import { DataTable } from "@/widgets/table/DataTable";
import styles from "./compare.module.css";

interface Props {
  found: Comparison;
  cases: readonly Case[];
  references: readonly [string, string];
}

interface Difference {
  line: number;
  input: string;
  label: string;
  first: string;
  second: string;
  /** 1 if the first is nearer to the label, -1 if the second is, 0 otherwise. */
  better: number;
}

const TABLE_HEIGHT = 520;

/** The rows that the two versions answer differently. */
export function Differences({ found, cases, references }: Props) {
  const rows = useMemo(() => found.differing.map((row) => difference(found, cases, row)), [found, cases]);
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

function difference({ first, second }: Comparison, cases: readonly Case[], row: number): Difference {
  const one = cases[row];
  return {
    line: one?.line ?? 0,
    input: textsOf(one?.input ?? "").join(" · "),
    label: first.gold[row] ?? "",
    first: first.shown[row] ?? "",
    second: second.shown[row] ?? "",
    better: Math.sign((second.errors[row] ?? 0) - (first.errors[row] ?? 0)),
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
      cell: ({ first: own, better }) => answer(own, better > 0),
      sortBy: ({ first: own }) => own,
    },
    {
      id: "second",
      header: second,
      width: 200,
      cell: ({ second: own, better }) => answer(own, better < 0),
      sortBy: ({ second: own }) => own,
    },
    {
      id: "better",
      header: "Better",
      width: 120,
      cell: ({ better }) => (better === 0 ? "neither" : better > 0 ? first : second),
      sortBy: ({ better }) => better,
    },
  ];
}
