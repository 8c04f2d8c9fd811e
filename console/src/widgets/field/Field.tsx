import type { ReactNode } from "react";
import styles from "./Field.module.css";

interface Props {
  label: string;
  hint?: ReactNode;
  error?: string;
  /** One control. */
  children: ReactNode;
}

/** A control with its label, and what is wrong with its value. */
export function Field({ label, hint, error, children }: Props) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is among the children.
    <label className={styles.field}>
      <span className={styles.label}>{label}</span>
      {children}
      {hint && <span className={styles.hint}>{hint}</span>}
      {error && (
        <span className={styles.error} role="alert">
          {error}
        </span>
      )}
    </label>
  );
}
