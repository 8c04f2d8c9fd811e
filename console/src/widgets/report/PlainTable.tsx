import { Scroller } from "@/widgets/scroll/Scroller";
import styles from "./PlainTable.module.css";

interface Props {
  head: readonly string[];
  rows: readonly (readonly string[])[];
  /** How many columns hold text; those after them hold numbers. */
  texts?: number;
}

/** A small table, all of whose rows are in the document. */
export function PlainTable({ head, rows, texts = 1 }: Props) {
  const sideOf = (place: number) => (place < texts ? undefined : styles.number);
  return (
    <Scroller label={head.join(", ")}>
      <table className={styles.table}>
        <thead>
          <tr>
            {head.map((name, place) => (
              <th key={name} scope="col" className={sideOf(place)}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.join(" ")}>
              {row.map((text, place) => (
                <td key={head[place]} className={sideOf(place)}>
                  {text}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroller>
  );
}
