import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { setAlias } from "@/api/adapters";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Field } from "@/widgets/field/Field";
import styles from "./aliases.module.css";

interface Props {
  name: string;
  known: readonly number[];
  onClose: () => void;
}

/** Takes the name and the version of a new alias. */
export function NewAliasDialog({ name, known, onClose }: Props) {
  const [alias, setName] = useState("production");
  const [version, setVersion] = useState(known[0] ?? 1);
  const cache = useQueryClient();
  const create = useMutation({
    mutationFn: () => setAlias(name, alias.trim(), { [version]: 1 }),
    onSuccess: async () => {
      await cache.invalidateQueries({ queryKey: ["adapters"] });
      onClose();
    },
  });
  const save = (event: FormEvent) => {
    event.preventDefault();
    create.mutate();
  };
  return (
    <Dialog title="New alias" onClose={onClose}>
      <form onSubmit={save} className={styles.form}>
        <Field label="Name" hint={`Requests name it ${name}@${alias || "…"}.`} error={create.error?.message}>
          <input value={alias} spellCheck={false} onChange={(event) => setName(event.target.value)} />
        </Field>
        <Field label="Version">
          <select value={version} onChange={(event) => setVersion(Number(event.target.value))}>
            {known.map((number) => (
              <option key={number} value={number}>
                v{number}
              </option>
            ))}
          </select>
        </Field>
        <Dialog.Actions>
          <Button kind="primary" type="submit" disabled={!alias.trim() || create.isPending}>
            Create
          </Button>
        </Dialog.Actions>
      </form>
    </Dialog>
  );
}
