import { type FormEvent, useState } from "react";
import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Field } from "@/widgets/field/Field";
import styles from "./KeyForm.module.css";

interface Props {
  tenant: string;
  isPending: boolean;
  onCancel: () => void;
  onSubmit: (request: Schema<"KeyRequest">) => void;
}

type Scope = Schema<"KeyRequest">["scopes"][number];

const SCOPES: readonly { scope: Scope; means: string }[] = [
  { scope: "predict", means: "predictions, and reading adapters" },
  { scope: "publish", means: "uploads, aliases, deletions" },
  { scope: "train", means: "trainings and their files" },
  { scope: "metrics", means: "/metrics and the page Live" },
  { scope: "admin", means: "tenants, quotas, keys, the audit log" },
];
const MAX_NOTE_LEN = 200;

/** What a new key may do, and for how long. */
export function KeyForm({ tenant, isPending, onCancel, onSubmit }: Props) {
  const [scopes, setScopes] = useState<readonly Scope[]>(["predict"]);
  const [note, setNote] = useState("");
  const [end, setEnd] = useState("");
  const toggle = (scope: Scope) =>
    setScopes(scopes.includes(scope) ? scopes.filter((one) => one !== scope) : [...scopes, scope]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit({ tenant, scopes: [...scopes], note, expires_at: end ? new Date(end).toISOString() : null });
  };
  return (
    <form onSubmit={submit} className={styles.form}>
      <fieldset className={styles.scopes}>
        <legend>Scopes</legend>
        {SCOPES.map(({ scope, means }) => (
          <label key={scope}>
            <input type="checkbox" checked={scopes.includes(scope)} onChange={() => toggle(scope)} />{" "}
            <strong>{scope}</strong> <span className={styles.means}>{means}</span>
          </label>
        ))}
      </fieldset>
      <Field label="Note" hint="Who uses it, and for what.">
        <input value={note} maxLength={MAX_NOTE_LEN} onChange={(event) => setNote(event.target.value)} />
      </Field>
      <Field label="Expires" hint="In your time zone. Empty: valid until it is revoked.">
        <input type="datetime-local" value={end} onChange={(event) => setEnd(event.target.value)} />
      </Field>
      <Dialog.Actions>
        <Button onClick={onCancel}>Cancel</Button>
        <Button kind="primary" type="submit" disabled={scopes.length === 0 || isPending}>
          Create key
        </Button>
      </Dialog.Actions>
    </form>
  );
}
