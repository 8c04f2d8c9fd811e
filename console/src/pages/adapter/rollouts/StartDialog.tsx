import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { startRollout } from "@/api/rollouts";
import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Field } from "@/widgets/field/Field";
import styles from "./rollouts.module.css";

interface Props {
  name: string;
  /** Those that mean one version. */
  aliases: readonly Schema<"Alias">[];
  known: readonly number[];
  onClose: () => void;
}

/** Takes the alias, the version and how it is tried. */
export function StartDialog({ name, aliases, known, onClose }: Props) {
  const [alias, setAlias] = useState(aliases[0]?.alias ?? "");
  const [chosen, setChosen] = useState<number | null>(null);
  const [isShadow, setIsShadow] = useState(true);
  const [points, setPoints] = useState("10");
  const cache = useQueryClient();
  const meant = aliases.find((one) => one.alias === alias)?.versions ?? {};
  const others = known.filter((version) => !(version in meant));
  const candidate = chosen !== null && others.includes(chosen) ? chosen : (others[0] ?? 1);
  const start = useMutation({
    mutationFn: () =>
      startRollout(name, alias, candidate, isShadow ? { shadow: true } : { share: Number(points) / 100 }),
    onSuccess: async () => {
      await cache.invalidateQueries({ queryKey: ["adapters"] });
      onClose();
    },
  });
  const save = (event: FormEvent) => {
    event.preventDefault();
    start.mutate();
  };
  return (
    <Dialog title="Try a version" onClose={onClose}>
      <form onSubmit={save} className={styles.form}>
        <Field label="Alias">
          <select value={alias} onChange={(event) => setAlias(event.target.value)}>
            {aliases.map((one) => (
              <option key={one.alias}>{one.alias}</option>
            ))}
          </select>
        </Field>
        <Field label="Candidate">
          <select value={candidate} onChange={(event) => setChosen(Number(event.target.value))}>
            {others.map((version) => (
              <option key={version} value={version}>
                v{version}
              </option>
            ))}
          </select>
        </Field>
        <Field
          label="How"
          hint={
            isShadow
              ? "The candidate is computed after each answer and answers nobody."
              : "The candidate answers this share of the requests."
          }
          error={start.error?.message}
        >
          <select
            value={isShadow ? "shadow" : "share"}
            onChange={(event) => setIsShadow(event.target.value === "shadow")}
          >
            <option value="shadow">Shadow</option>
            <option value="share">Share of the requests</option>
          </select>
        </Field>
        {!isShadow && (
          <Field label="Share in percent">
            <input
              type="number"
              min={1}
              max={99}
              required
              value={points}
              onChange={(event) => setPoints(event.target.value)}
            />
          </Field>
        )}
        <Dialog.Actions>
          <Button kind="primary" type="submit" disabled={start.isPending}>
            Start
          </Button>
        </Dialog.Actions>
      </form>
    </Dialog>
  );
}
