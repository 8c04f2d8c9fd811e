import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { deprecateVersion } from "@/api/adapters";
import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Field } from "@/widgets/field/Field";

const MAX_REASON_CHARS = 1000;

interface Props {
  name: string;
  version: Schema<"VersionSummary">;
  onClose: () => void;
}

/** Takes the reason to deprecate a version, or removes its deprecation. */
export function DeprecationDialog({ name, version, onClose }: Props) {
  const [reason, setReason] = useState(version.deprecation ?? "");
  const cache = useQueryClient();
  const change = useMutation({
    mutationFn: (given: string | null) => deprecateVersion(name, version.version, given),
    onSuccess: async () => {
      await cache.invalidateQueries({ queryKey: ["adapters"] });
      onClose();
    },
  });
  const save = (event: FormEvent) => {
    event.preventDefault();
    change.mutate(reason.trim());
  };
  return (
    <Dialog title={`Deprecate version ${version.version}`} onClose={onClose}>
      <form onSubmit={save}>
        <Field
          label="Reason"
          hint="The version still answers when it is named. A bare name means another version where there is one."
          error={change.error?.message}
        >
          <input value={reason} maxLength={MAX_REASON_CHARS} onChange={(event) => setReason(event.target.value)} />
        </Field>
        <Dialog.Actions>
          {version.deprecation && <Button onClick={() => change.mutate(null)}>Remove the deprecation</Button>}
          <Button kind="primary" type="submit" disabled={!reason.trim() || change.isPending}>
            Deprecate
          </Button>
        </Dialog.Actions>
      </form>
    </Dialog>
  );
}
