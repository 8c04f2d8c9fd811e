import { textsOf } from "@/rows/input";
import { Badge } from "@/widgets/badge/Badge";
import { Button } from "@/widgets/button/Button";
import type { Column } from "@/widgets/table/column";
import { summary } from "./answer/summary";
import type { AnsweredRow } from "./batch";

/** The columns of the results of a batch. `onOpen` shows everything about a row. */
export function batchColumns(onOpen: (row: AnsweredRow) => void): Column<AnsweredRow>[] {
  const end = { align: "end" } as const;
  return [
    {
      id: "line",
      header: "Line",
      width: 60,
      ...end,
      namesRow: true,
      cell: ({ line }) => line,
      sortBy: ({ line }) => line,
    },
    { id: "task", header: "Task", width: 140, cell: ({ item }) => item?.task, sortBy: ({ item }) => item?.task ?? "" },
    { id: "answer", header: "Answer", width: 240, grows: true, cell: answerCell, sortBy: answerText },
    {
      id: "input",
      header: "Input",
      width: 220,
      grows: true,
      cell: ({ item }) => item && textsOf(item.input).join(" · "),
    },
    { id: "version", header: "Version", width: 80, ...end, cell: (row) => facts(row)?.adapter.version },
    { id: "tier", header: "Tier", width: 70, cell: (row) => facts(row)?.tier },
    { id: "queue", header: "Queue ms", width: 90, ...end, ...time("queue") },
    { id: "compute", header: "Compute ms", width: 100, ...end, ...time("compute") },
    { id: "batch", header: "Batch", width: 80, ...end, cell: (row) => batchText(row) },
    {
      id: "more",
      header: "",
      width: 96,
      cell: (row) => (
        <Button kind="quiet" aria-label={`Show line ${row.line}`} onClick={() => onOpen(row)}>
          Show
        </Button>
      ),
    },
  ];
}

function answerText(row: AnsweredRow): string {
  if (row.problem) return row.problem;
  if (!row.result) return "";
  if ("error" in row.result) return row.result.error.message;
  return row.result.predictions[0] ? summary(row.result.predictions[0]) : "";
}

function answerCell(row: AnsweredRow) {
  const text = answerText(row);
  const failed = row.problem || (row.result && "error" in row.result);
  if (!failed) return <span title={text}>{text || "…"}</span>;
  return (
    <span title={text}>
      <Badge tone="bad">{row.result && "error" in row.result ? row.result.error.code : "not sent"}</Badge> {text}
    </span>
  );
}

function facts({ result }: AnsweredRow) {
  return result && "predictions" in result ? result : undefined;
}

function time(phase: "queue" | "compute"): Pick<Column<AnsweredRow>, "cell" | "sortBy"> {
  return {
    cell: (row) => facts(row)?.timings_ms[phase].toFixed(1),
    sortBy: (row) => facts(row)?.timings_ms[phase] ?? -1,
  };
}

function batchText(row: AnsweredRow): string | undefined {
  const batch = facts(row)?.batch;
  return batch && `${batch.rows} × ${batch.adapters}`;
}
