import { textsOf } from "@/rows/input";
import { Badge } from "@/widgets/badge/Badge";
import { Button } from "@/widgets/button/Button";
import type { Column } from "@/widgets/table/column";
import { numberColumn } from "@/widgets/table/numberColumn";
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
    numberColumn("queue", "Queue ms", 90, (row) => facts(row)?.timings_ms.queue, milliseconds),
    numberColumn("compute", "Compute ms", 100, (row) => facts(row)?.timings_ms.compute, milliseconds),
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

function milliseconds(value: number): string {
  return value.toFixed(1);
}

function batchText(row: AnsweredRow): string | undefined {
  const batch = facts(row)?.batch;
  return batch && `${batch.rows} × ${batch.adapters}`;
}
