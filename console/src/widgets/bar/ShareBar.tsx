import styles from "./ShareBar.module.css";

interface Props {
  /** From 0 to 1; none is drawn for null. */
  share: number | null;
  tone?: "accent" | "muted" | "warn" | "bad";
}

/** A share as a bar that fills; the number stands beside it in words. */
export function ShareBar({ share, tone = "accent" }: Props) {
  return (
    <div className={styles.track} aria-hidden="true">
      {share !== null && (
        <div className={`${styles.fill} ${styles[tone]}`} style={{ width: `${100 * Math.min(1, share)}%` }} />
      )}
    </div>
  );
}
