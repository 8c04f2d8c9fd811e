import styles from "./states.module.css";

/** Stands where something will be. Appears late, so that fast answers do not flicker. */
export function Loading({ label }: { label: string }) {
  return (
    <div className={styles.loading} role="status">
      {label}…
    </div>
  );
}
