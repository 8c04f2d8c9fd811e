import type { SubmitEvent } from "react";
import { Button } from "@/widgets/button/Button";
import { Field } from "@/widgets/field/Field";
import { FileButton } from "@/widgets/file/FileButton";
import { counted } from "@/widgets/format/numbers";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { useRun } from "@/widgets/run/useRun";
import { InlineError } from "@/widgets/states/InlineError";
import { TaskPicker } from "@/widgets/task/TaskPicker";
import { type Asked, askBoth } from "./askBoth";
import { ColumnFields } from "./ColumnFields";
import styles from "./compare.module.css";
import { type Judged, judge } from "./judge";
import { Results } from "./Results";
import { useComparison } from "./useComparison";

export interface Compared {
  tasks: Parameters<typeof askBoth>[0];
  asked: Asked;
  /** Absent until both have answered a row. */
  judged?: Judged;
}

/** Two versions on the same labelled rows. */
export default function ComparePage() {
  const form = useComparison();
  const { references, errors, problem, tasks, table, columns, text } = form;
  const { state, run, cancel } = useRun<Compared>();
  const isReady = tasks !== null && problem === "" && table.rows.length > 0;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!tasks || !isReady) return;
    run(async (signal, show) => {
      let judged: Judged | undefined;
      const judgeFrom = async (asked: Asked, count: number) => {
        if (asked.cases.length >= Math.max(1, count)) judged = await judge(tasks, asked, signal);
      };
      const onProgress = async (asked: Asked) => {
        // Twice as many rows as the last time, so that no more than twice the rows are judged in all.
        await judgeFrom(asked, 2 * (judged?.asked.length ?? 0));
        show({ tasks, asked, judged });
      };
      const asked = await askBoth(tasks, table.rows, columns, onProgress, signal);
      await judgeFrom(asked, (judged?.asked.length ?? 0) + 1);
      return { tasks, asked, judged };
    });
  };
  return (
    <>
      <PageHeading title="Compare" about="Two versions answer the same labelled rows." />
      <form className={styles.form} onSubmit={submit}>
        <div className={styles.pair}>
          {(["first", "second"] as const).map((side) => (
            <TaskPicker
              key={side}
              label={side === "first" ? "First version" : "Second version"}
              value={references[side]}
              onChoose={(reference) => form.choose(side, reference)}
              error={errors[side]}
            />
          ))}
        </div>
        {problem && <InlineError error={new Error(problem)} />}
        <Field label="Labelled rows" hint="JSON lines, or a table with a line of column names.">
          <textarea
            className={styles.rows}
            rows={7}
            spellCheck={false}
            placeholder={"text\tlabel\nI am still waiting on my card?\tcard_arrival"}
            value={text}
            onChange={(event) => form.setText(event.target.value)}
          />
        </Field>
        {table.columns.length > 0 && <ColumnFields table={table} columns={columns} onChange={form.setColumns} />}
        <div className={styles.actions}>
          <Button type="submit" kind="primary" disabled={!isReady}>
            Compare{table.rows.length > 0 && ` on ${counted(table.rows.length, "row")}`}
          </Button>
          {state.status === "running" && <Button onClick={cancel}>Cancel</Button>}
          <FileButton label="Open a file" accept=".tsv,.csv,.jsonl,.gz" onText={form.setText} />
        </div>
      </form>
      <Results state={state} />
    </>
  );
}
