import { CopyButton } from "@/widgets/copy/CopyButton";
import styles from "./Digest.module.css";

const SHOWN = 12;

/** The beginning of a digest, with a button that copies all of it. */
export function Digest({ value }: { value: string }) {
  return (
    <span className={styles.digest}>
      <code title={value}>{value.replace(/^sha256:/, "").slice(0, SHOWN)}</code>
      <CopyButton text={value} what="the digest" />
    </span>
  );
}
