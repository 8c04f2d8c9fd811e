import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { answer, api } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Field } from "@/widgets/field/Field";
import { Failure } from "./Failure";
import styles from "./Form.module.css";
import { QuotaFields } from "./QuotaFields";
import { type QuotaTexts, quotasOf } from "./quotas";

interface Props {
  onClose: () => void;
  onCreated: (name: string) => void;
}

const NO_QUOTAS: QuotaTexts = {
  requests_per_second: "",
  tokens_per_second: "",
  max_concurrent_requests: "",
  max_stored_bytes: "",
  max_adapters: "",
  max_trainings: "",
  max_training_rows: "",
  max_training_minutes_per_day: "",
  weight: "",
};

/** Makes a tenant. */
export function NewTenantDialog({ onClose, onCreated }: Props) {
  const [name, setName] = useState("");
  const [texts, setTexts] = useState(NO_QUOTAS);
  const client = useQueryClient();
  const { mutate, error, isPending } = useMutation({
    mutationFn: () => answer(api.POST("/v1/tenants", { body: { name, quotas: quotasOf(texts) } })),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["tenants"] });
      onCreated(name);
      onClose();
    },
  });
  const create = (event: FormEvent) => {
    event.preventDefault();
    mutate();
  };
  return (
    <Dialog title="New tenant" onClose={onClose}>
      <form onSubmit={create} className={styles.form}>
        <Field label="Name" hint="Small letters, digits, and . _ - inside. A tenant cannot be renamed or deleted.">
          <input required value={name} onChange={(event) => setName(event.target.value)} spellCheck={false} />
        </Field>
        <h3>Quotas</h3>
        <QuotaFields texts={texts} onChange={setTexts} />
        <Failure error={error} />
        <Dialog.Actions>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={!name || isPending}>
            Create
          </Button>
        </Dialog.Actions>
      </form>
    </Dialog>
  );
}
