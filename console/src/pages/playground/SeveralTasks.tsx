import { useState } from "react";
import { useSearchParams } from "wouter";
import { type Ask, predictMixed } from "@/api/predictions";
import type { Schema } from "@/api/server";
import { useRun } from "@/widgets/run/useRun";
import { TaskPicker } from "@/widgets/task/TaskPicker";
import { AskForm } from "./form/AskForm";
import { InputFields } from "./form/InputFields";
import { inputForm, inputsOf } from "./form/inputForm";
import styles from "./layout.module.css";
import { SeveralResults } from "./SeveralResults";
import { useTexts } from "./useTexts";

type SeveralAsk = Ask & { kind: "tasks" };

export interface SeveralAnswers {
  ask: SeveralAsk;
  body: Schema<"MixedPredictResponse">;
}

/** One text for several tasks or groups of tasks, in one request. */
export function SeveralTasks() {
  const [search, setSearch] = useSearchParams();
  const tasks = search.get("tasks")?.split(",").filter(Boolean) ?? [];
  const { typed, setTyped } = useTexts();
  const texts = typed ?? [];
  const [hasPair, setHasPair] = useState(false);
  const { state, run, cancel } = useRun<SeveralAnswers>();

  const form = inputForm({ type: "", inputs: hasPair ? "pair" : "single" }, false);
  const [input] = inputsOf(form, texts);
  const setTasks = (next: readonly string[]) => {
    const own = new URLSearchParams(search);
    own.set("tasks", next.join(","));
    setSearch(own, { replace: true });
  };
  const ask: SeveralAsk | null =
    tasks.length > 0 && input !== undefined ? { kind: "tasks", tasks, input, parameters: {} } : null;
  const send = (sent: SeveralAsk) => run(async (signal) => ({ ask: sent, body: await predictMixed(sent, signal) }));

  return (
    <div className={styles.columns}>
      <AskForm onAsk={ask && (() => send(ask))} onCancel={state.status === "running" ? cancel : null} snippet={ask}>
        <TaskPicker
          label="Tasks"
          value=""
          isCleared
          allowsGroups
          hint="Enter adds a task. “triage.*” is a group: all of your adapters whose names begin so."
          onChoose={(task) => setTasks([...tasks.filter((own) => own !== task), task])}
        />
        <div className={styles.chips}>
          {tasks.map((task) => (
            <button
              key={task}
              type="button"
              className={styles.chip}
              aria-label={`Remove ${task}`}
              onClick={() => setTasks(tasks.filter((own) => own !== task))}
            >
              {task} ✕
            </button>
          ))}
        </div>
        <InputFields form={form} texts={texts} onChange={setTyped} />
        <div className={styles.options}>
          <label>
            <input type="checkbox" checked={hasPair} onChange={(event) => setHasPair(event.target.checked)} /> with a
            second text
          </label>
        </div>
      </AskForm>
      <SeveralResults state={state} hasTasks={tasks.length > 0} />
    </div>
  );
}
