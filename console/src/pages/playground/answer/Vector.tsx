import { counted, significant } from "@/widgets/format/numbers";
import styles from "./Vector.module.css";

const SHOWN = 6;

/** The size, the length and the first values of an embedding. */
export function Vector({ values }: { values: readonly number[] }) {
  const length = Math.sqrt(values.reduce((total, value) => total + value * value, 0));
  return (
    <p className={styles.vector}>
      {counted(values.length, "dimension")}, length {significant(length)}:{" "}
      <code>
        {values
          .slice(0, SHOWN)
          .map((value) => value.toFixed(4))
          .join(", ")}
        {values.length > SHOWN && ", …"}
      </code>
    </p>
  );
}
