import type { ReactNode } from "react";
import panel from "@/widgets/panel/Panel.module.css";
import styles from "./compare.module.css";

interface Props {
  title: string;
  /** The headings of the first and of the last column; between them stand the two versions. */
  head: readonly [string, string];
  references: readonly [string, string];
  rows: readonly { name: string; a: number; b: number; last: string }[];
  note?: ReactNode;
}

/** A number of each of the two versions in each row. */
export function PairTable({ title, head, references, rows, note }: Props) {
  const [first, last] = head;
  return (
    <section className={panel.panel} aria-label={title}>
      <h2>{title}</h2>
      <table className={styles.table}>
        <thead>
          <tr>
            {[first, ...references, last].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, a, b, last: own }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{a.toFixed(4)}</td>
              <td>{b.toFixed(4)}</td>
              <td>{own}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {note && <p className={panel.note}>{note}</p>}
    </section>
  );
}
