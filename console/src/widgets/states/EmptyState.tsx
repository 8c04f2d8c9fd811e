import type { ReactNode } from "react";
import styles from "./states.module.css";

interface Props {
  title: string;
  /** What to do next. */
  children?: ReactNode;
  actions?: ReactNode;
}

/** Stands where there is nothing to show, and says what to do next. */
export function EmptyState({ title, children, actions }: Props) {
  return (
    <div className={styles.state}>
      <h2>{title}</h2>
      {children && <div className={styles.text}>{children}</div>}
      {actions && <div className={styles.actions}>{actions}</div>}
    </div>
  );
}
