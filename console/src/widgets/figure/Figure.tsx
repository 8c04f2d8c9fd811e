import type { ReactNode } from "react";
import styles from "./Figure.module.css";

interface Props {
  title: string;
  children: ReactNode;
  /** Takes the whole width of the page. */
  isWide?: boolean;
}

/** A titled place on the page for a chart or a table. */
export function Figure({ title, children, isWide = false }: Props) {
  return (
    <section className={`${styles.figure} ${isWide ? styles.wide : ""}`} aria-label={title}>
      <h2 className={styles.title}>{title}</h2>
      {children}
    </section>
  );
}

/** Stands where a chart will be. */
Figure.Nothing = function Nothing({ height, children }: { height: number; children: ReactNode }) {
  return (
    <p className={styles.nothing} style={{ minHeight: height }}>
      {children}
    </p>
  );
};
