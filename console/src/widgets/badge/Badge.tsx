import type { ReactNode } from "react";
import styles from "./Badge.module.css";

interface Props {
  tone?: "neutral" | "good" | "warn" | "bad" | "accent";
  title?: string;
  children: ReactNode;
}

/** A short word that stands for a state. */
export function Badge({ tone = "neutral", title, children }: Props) {
  return (
    <span className={`${styles.badge} ${styles[tone]}`} title={title}>
      {children}
    </span>
  );
}
