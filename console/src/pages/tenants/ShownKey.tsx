import { currentKey, setKey } from "@/api/key";
import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { CopyButton } from "@/widgets/copy/CopyButton";
import { Dialog } from "@/widgets/dialog/Dialog";
import styles from "./ShownKey.module.css";

interface Props {
  made: Schema<"NewKey">;
  onClose: () => void;
}

/** The text of a new key. The server keeps only a digest of it. */
export function ShownKey({ made, onClose }: Props) {
  const use = () => {
    setKey(made.key);
    onClose();
  };
  return (
    <>
      <p>Copy it now: it is not shown again, and the server cannot read it either.</p>
      <p className={styles.key}>
        <code>{made.key}</code> <CopyButton text={made.key} what="the key" />
      </p>
      {!currentKey().key && (
        <p>This tab has no key. If this is the server's first one, every request needs a key from now on.</p>
      )}
      <Dialog.Actions>
        {made.scopes.includes("admin") && <Button onClick={use}>Use it in this tab</Button>}
        <Button kind="primary" onClick={onClose}>
          I have copied it
        </Button>
      </Dialog.Actions>
    </>
  );
}
