import type { KeyboardEvent, ReactNode, SubmitEvent } from "react";
import type { Ask } from "@/api/predictions";
import { Button } from "@/widgets/button/Button";
import styles from "../layout.module.css";
import { Snippets } from "./Snippets";

interface Props {
  /** The fields. */
  children: ReactNode;
  /** What the button says. */
  action?: string;
  /** Absent while something is missing. */
  onAsk: (() => void) | null;
  /** Absent while nothing runs. */
  onCancel: (() => void) | null;
  /** What stands beside the buttons. */
  tools?: ReactNode;
  /** The request that is shown as code. */
  snippet: Ask | null;
}

/** The form of each mode, which Ctrl+Enter sends from within a field of several lines too. */
export function AskForm({ children, action = "Predict", onAsk, onCancel, tools, snippet }: Props) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    onAsk?.();
  };
  return (
    <form className={styles.form} onSubmit={submit} onKeyDown={submitOnCtrlEnter}>
      {children}
      <div className={styles.actions}>
        <Button type="submit" kind="primary" disabled={!onAsk} title="Ctrl+Enter">
          {action}
        </Button>
        {onCancel && <Button onClick={onCancel}>Cancel</Button>}
        {tools}
      </div>
      {snippet && <Snippets ask={snippet} />}
    </form>
  );
}

function submitOnCtrlEnter(event: KeyboardEvent<HTMLFormElement>): void {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.currentTarget.requestSubmit();
}
