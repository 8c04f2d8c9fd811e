import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { serverInfo } from "@/api/info";
import type { Result } from "@/api/predictions";
import { Field } from "@/widgets/field/Field";
import { FileButton } from "@/widgets/file/FileButton";
import { counted } from "@/widgets/format/numbers";
import { useRun } from "@/widgets/run/useRun";
import { askBatch } from "./askBatch";
import { BatchResults } from "./BatchResults";
import { type BatchRow, readBatch } from "./batch";
import { AskForm } from "./form/AskForm";
import styles from "./layout.module.css";
import { RowCount } from "./RowCount";

const PLACEHOLDER =
  "banking77\tI am still waiting on my card?\nclinc150\twhat is the weather in Rome\nnli\tA man sleeps.\tA man is awake.";
const MAX_SNIPPET_ROWS = 20;
const FEWEST_INPUTS = 64;

export interface BatchAnswers {
  rows: readonly BatchRow[];
  /** One for each row that has an item, as far as they have arrived. */
  results: readonly Result[];
}

/** A table of tasks and texts, whose rows the server computes in mixed batches. */
export function BatchMode() {
  const [text, setText] = useState("");
  const info = useQuery(serverInfo());
  const rows = useMemo(() => readBatch(text), [text]);
  const items = useMemo(() => rows.flatMap(({ item }) => (item ? [item] : [])), [rows]);
  const { state, run, cancel } = useRun<BatchAnswers>();
  const showsSnippet = items.length > 0 && items.length <= MAX_SNIPPET_ROWS;

  const send = () => {
    const maxInputs = info.data?.limits?.max_inputs ?? FEWEST_INPUTS;
    run(async (signal, show) => ({
      rows,
      results: await askBatch(items, maxInputs, (results) => show({ rows, results }), signal),
    }));
  };

  return (
    <div className={styles.results}>
      <AskForm
        action={items.length > 0 ? `Predict ${counted(items.length, "row")}` : "Predict"}
        onAsk={items.length > 0 ? send : null}
        onCancel={state.status === "running" ? cancel : null}
        tools={
          <>
            <FileButton label="Open a file" accept=".tsv,.csv,.jsonl,.txt,.gz" onText={setText} />
            <RowCount rows={rows} />
          </>
        }
        snippet={showsSnippet ? { kind: "mixed", items, parameters: {} } : null}
      >
        <Field
          label="Rows"
          hint="A task, a text and perhaps a second text, separated by tabs or commas; or JSON lines with task, text and pair."
        >
          <textarea
            className={styles.table}
            rows={8}
            placeholder={PLACEHOLDER}
            spellCheck={false}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </Field>
      </AskForm>
      <BatchResults state={state} />
    </div>
  );
}
