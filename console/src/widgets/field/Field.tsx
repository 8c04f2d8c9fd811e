import { cloneElement, type ReactElement, type ReactNode, useId } from "react";
import styles from "./Field.module.css";

interface Control {
  id?: string;
  "aria-describedby"?: string;
  "aria-invalid"?: boolean;
}

interface Props {
  label: string;
  hint?: ReactNode;
  error?: string;
  /** One control. */
  children: ReactElement<Control>;
}

/** A control with its label; the hint and what is wrong with its value describe it for screen readers. */
export function Field({ label, hint, error, children }: Props) {
  const id = useId();
  const hintId = hint ? `${id}-hint` : "";
  const errorId = error ? `${id}-error` : "";
  const control = cloneElement(children, {
    id,
    "aria-describedby": `${hintId} ${errorId}`.trim() || undefined,
    "aria-invalid": error ? true : undefined,
  });
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={styles.label}>
        {label}
      </label>
      {control}
      {hint && (
        <span id={hintId} className={styles.hint}>
          {hint}
        </span>
      )}
      {error && (
        <span id={errorId} className={styles.error} role="alert">
          {error}
        </span>
      )}
    </div>
  );
}
