import type { SubmitEvent } from "react";
import { useSearchParams } from "wouter";
import { Button } from "@/widgets/button/Button";
import { useRun } from "@/widgets/run/useRun";
import { TaskPicker } from "@/widgets/task/TaskPicker";
import { askOne, type Shown } from "./askOne";
import { InputFields } from "./form/InputFields";
import { OptionBoxes } from "./form/OptionBoxes";
import { ParametersForm } from "./form/ParametersForm";
import { Snippets } from "./form/Snippets";
import styles from "./layout.module.css";
import { OneResult } from "./OneResult";
import { submitOnCtrlEnter } from "./submit";
import { TaskFacts } from "./TaskFacts";
import { useOneTask } from "./useOneTask";
import { useTexts } from "./useTexts";

/** One task: the form that its kind needs, and its answer. */
export function OneTask() {
  const [search, setSearch] = useSearchParams();
  const { texts, setTexts } = useTexts();
  const { reference, task, type, form, fields, offers, options, setOptions, values, setValues, ask } = useOneTask();
  const { state, run, cancel } = useRun<Shown>();
  const choose = (chosen: string) => {
    const next = new URLSearchParams(search);
    next.set("task", chosen);
    setSearch(next, { replace: true });
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (ask) run((signal, show) => askOne(ask, type, signal, show));
  };
  return (
    <div className={styles.columns}>
      <form className={styles.form} onSubmit={submit} onKeyDown={submitOnCtrlEnter}>
        <TaskPicker label="Task" value={reference} onChoose={choose} error={task.error?.message} />
        {task.data && <TaskFacts task={task.data} />}
        <InputFields form={form} texts={texts} onChange={setTexts} />
        <OptionBoxes offers={offers} options={options} onChange={setOptions} />
        <ParametersForm fields={fields} values={values} onChange={setValues} />
        <div className={styles.actions}>
          <Button type="submit" kind="primary" disabled={!ask} title="Ctrl+Enter">
            Predict
          </Button>
          {state.status === "running" && <Button onClick={cancel}>Cancel</Button>}
        </div>
        {ask && <Snippets ask={ask} />}
      </form>
      <OneResult state={state} hasTask={reference !== ""} />
    </div>
  );
}
