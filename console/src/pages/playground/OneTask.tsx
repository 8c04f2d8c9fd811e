import { useSearchParams } from "wouter";
import { useRun } from "@/widgets/run/useRun";
import { TaskPicker } from "@/widgets/task/TaskPicker";
import { askOne, type Shown } from "./askOne";
import { AskForm } from "./form/AskForm";
import { InputFields } from "./form/InputFields";
import { OptionBoxes } from "./form/OptionBoxes";
import { ParametersForm } from "./form/ParametersForm";
import styles from "./layout.module.css";
import { OneResult } from "./OneResult";
import { TaskFacts } from "./TaskFacts";
import { useOneTask } from "./useOneTask";
import { useTexts } from "./useTexts";

/** One task: the form that its kind needs, and its answer. */
export function OneTask() {
  const [search, setSearch] = useSearchParams();
  const { setTyped } = useTexts();
  const { reference, task, type, form, texts, hasExample, fields, offers, options, setOptions, ...rest } = useOneTask();
  const { values, setValues, ask } = rest;
  const { state, run, cancel } = useRun<Shown>();
  const choose = (chosen: string) => {
    const next = new URLSearchParams(search);
    next.set("task", chosen);
    setSearch(next, { replace: true });
  };
  const send = (sent: Shown["ask"]) => run((signal, show) => askOne(sent, type, signal, show));
  return (
    <div className={styles.columns}>
      <AskForm onAsk={ask && (() => send(ask))} onCancel={state.status === "running" ? cancel : null} snippet={ask}>
        <TaskPicker label="Task" value={reference} onChoose={choose} error={task.error?.message} />
        {task.data && <TaskFacts task={task.data} />}
        <InputFields form={form} texts={texts} onChange={setTyped} />
        <OptionBoxes offers={offers} options={options} onChange={setOptions} />
        <ParametersForm fields={fields} values={values} onChange={setValues} />
      </AskForm>
      <OneResult state={state} hasTask={reference !== ""} hasExample={hasExample} />
    </div>
  );
}
