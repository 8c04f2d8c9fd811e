import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { beginTraining, type Training } from "@/api/trainings";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Field } from "@/widgets/field/Field";
import { InlineError } from "@/widgets/states/InlineError";
import { BudgetFields } from "./BudgetFields";
import styles from "./NewTraining.module.css";
import { EMPTY, type Form, requestOf, TYPES } from "./newTraining";
import { RowsFields } from "./RowsFields";

interface Props {
  onClose: () => void;
  onBegun: (training: Training) => void;
}

/** Takes a task and its rows, and begins a training. */
export function NewTrainingDialog({ onClose, onBegun }: Props) {
  const [form, setForm] = useState(EMPTY);
  const [file, setFile] = useState<File | null>(null);
  const client = useQueryClient();
  const { mutate, error, isPending } = useMutation({
    mutationFn: async () => beginTraining(requestOf(form, file !== null), file),
    onSuccess: (training) => {
      void client.invalidateQueries({ queryKey: ["trainings"] });
      onBegun(training);
    },
  });
  const change = (values: Partial<Form>) => setForm((before) => ({ ...before, ...values }));
  const begin = (event: FormEvent) => {
    event.preventDefault();
    mutate();
  };
  return (
    <Dialog title="New training" onClose={onClose}>
      <form onSubmit={begin} className={styles.form}>
        <Field label="Task" hint="The adapter becomes its next version.">
          <input
            required
            value={form.task}
            spellCheck={false}
            placeholder="intent"
            onChange={({ target }) => change({ task: target.value })}
          />
        </Field>
        <div className={styles.fields}>
          <Field label="Task type">
            <select value={form.type} onChange={({ target }) => change({ type: target.value as Form["type"] })}>
              <option value="">classification (default)</option>
              {TYPES.filter(({ type }) => type !== "classification").map(({ type }) => (
                <option key={type}>{type}</option>
              ))}
            </select>
          </Field>
          <Field
            label="Preset"
            hint={
              <>
                Empty: the default. <code>peltier presets</code> lists them.
              </>
            }
          >
            <input
              value={form.preset}
              spellCheck={false}
              placeholder="compacter"
              onChange={({ target }) => change({ preset: target.value })}
            />
          </Field>
          <Field label="Alias" hint="Means the new version at once. Empty: none.">
            <input
              value={form.alias}
              spellCheck={false}
              placeholder="canary"
              onChange={({ target }) => change({ alias: target.value })}
            />
          </Field>
          <BudgetFields form={form} onChange={change} />
        </div>
        <RowsFields form={form} file={file} onChange={change} onFile={setFile} />
        {error && <InlineError error={error} />}
        <Dialog.Actions>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind="primary"
            type="submit"
            disabled={!form.task.trim() || (!file && !form.rows.trim()) || isPending}
          >
            {isPending ? (file ? "Uploading…" : "Sending…") : "Begin training"}
          </Button>
        </Dialog.Actions>
      </form>
    </Dialog>
  );
}
