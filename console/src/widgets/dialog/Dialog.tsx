import { type MouseEvent, type ReactNode, useEffect, useId, useRef } from "react";
import { Button } from "@/widgets/button/Button";
import styles from "./Dialog.module.css";

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** The title is for screen readers only. */
  hidesTitle?: boolean;
}

/** A modal dialog. The browser keeps the focus inside, closes it with Escape and gives the focus back. */
export function Dialog({ title, onClose, children, hidesTitle = false }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  const onClick = (event: MouseEvent) => {
    if (event.target === dialog.current) onClose();
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: a click outside closes, and so does Escape.
    <dialog ref={dialog} className={styles.dialog} aria-labelledby={titleId} onCancel={onClose} onClick={onClick}>
      <div className={styles.content}>
        <div className={hidesTitle ? "visually-hidden" : styles.head}>
          <h2 id={titleId}>{title}</h2>
          {!hidesTitle && (
            <Button kind="quiet" onClick={onClose} aria-label="Close">
              ✕
            </Button>
          )}
        </div>
        {children}
      </div>
    </dialog>
  );
}

/** The buttons at the end of a dialog; the last one is what the dialog is for. */
Dialog.Actions = function Actions({ children }: { children: ReactNode }) {
  return <div className={styles.actions}>{children}</div>;
};
