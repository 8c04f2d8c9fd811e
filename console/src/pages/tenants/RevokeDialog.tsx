import { useMutation, useQueryClient } from "@tanstack/react-query";
import { answer, api } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { useNotice } from "@/widgets/notice/notices";
import { Failure } from "./Failure";

interface Props {
  prefix: string;
  tenant: string;
  onClose: () => void;
}

/** Asks before it revokes a key, because that cannot be undone. */
export function RevokeDialog({ prefix, tenant, onClose }: Props) {
  const client = useQueryClient();
  const notify = useNotice();
  const { mutate, error, isPending } = useMutation({
    mutationFn: () => answer(api.DELETE("/v1/keys/{prefix}", { params: { path: { prefix } } })),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["keys", tenant] });
      notify({ tone: "good", text: `Every replica refuses the key ${prefix} within a second.` });
      onClose();
    },
  });
  return (
    <Dialog title={`Revoke the key ${prefix}?`} onClose={onClose}>
      <p>Whoever uses it is refused at once. A revoked key cannot be made valid again.</p>
      <Failure error={error} />
      <Dialog.Actions>
        <Button onClick={onClose}>Keep it</Button>
        <Button kind="danger" onClick={() => mutate()} disabled={isPending}>
          Revoke
        </Button>
      </Dialog.Actions>
    </Dialog>
  );
}
