import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { answer, api, type Schema } from "@/api/server";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Failure } from "./Failure";
import { KeyForm } from "./KeyForm";
import { ShownKey } from "./ShownKey";

interface Props {
  tenant: string;
  onClose: () => void;
}

/** Makes a key and shows it this once. */
export function NewKeyDialog({ tenant, onClose }: Props) {
  const [made, setMade] = useState<Schema<"NewKey"> | null>(null);
  const client = useQueryClient();
  const { mutate, error, isPending } = useMutation({
    mutationFn: (body: Schema<"KeyRequest">) => answer(api.POST("/v1/keys", { body })),
    onSuccess: (key) => {
      setMade(key);
      void client.invalidateQueries({ queryKey: ["keys", tenant] });
    },
  });
  return (
    <Dialog title={made ? "The new key" : `New key of ${tenant}`} onClose={onClose}>
      {made ? (
        <ShownKey made={made} onClose={onClose} />
      ) : (
        <>
          <KeyForm tenant={tenant} isPending={isPending} onCancel={onClose} onSubmit={mutate} />
          <Failure error={error} />
        </>
      )}
    </Dialog>
  );
}
