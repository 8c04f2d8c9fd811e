import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { serverInfo } from "@/api/info";
import { setKey, useKey } from "@/api/key";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { Field } from "@/widgets/field/Field";
import styles from "./KeyDialog.module.css";

/** Takes the visitor's key, or forgets it. */
export function KeyDialog({ onClose }: { onClose: () => void }) {
  const { key } = useKey();
  const { isSuccess: needsNoKey } = useQuery({ ...serverInfo(), enabled: key === "" });
  const [typed, setTyped] = useState("");
  const save = (event: FormEvent) => {
    event.preventDefault();
    if (!typed.trim()) return;
    setKey(typed.trim());
    onClose();
  };
  const forget = () => {
    setKey("");
    onClose();
  };
  return (
    <Dialog title="API key" onClose={onClose}>
      {key === "" && needsNoKey && (
        <p className={styles.note}>
          This server has no keys yet and needs none: everyone who reaches it is its operator. It asks for a key once
          one has been created under Tenants &amp; keys.
        </p>
      )}
      <form onSubmit={save}>
        <Field label="Key" hint="The key stays in this tab and is forgotten when the tab is closed.">
          <input
            type="password"
            autoComplete="off"
            spellCheck={false}
            placeholder="plt_…"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
        </Field>
        <Dialog.Actions>
          {key && <Button onClick={forget}>Forget the key</Button>}
          <Button kind="primary" type="submit" disabled={!typed.trim()}>
            Use this key
          </Button>
        </Dialog.Actions>
      </form>
    </Dialog>
  );
}
