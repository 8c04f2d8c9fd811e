import type { ReactNode } from "react";
import styles from "./Tile.module.css";

/** Numbers in a row, each in a tile. */
export function Tiles({ children }: { children: ReactNode }) {
  return <dl className={styles.tiles}>{children}</dl>;
}

interface Props {
  name: string;
  value: ReactNode;
  note?: ReactNode;
}

/** One number with its name. */
export function Tile({ name, value, note }: Props) {
  return (
    <div className={styles.tile}>
      <dt>{name}</dt>
      <dd className={styles.value}>{value}</dd>
      {note && <dd className={styles.note}>{note}</dd>}
    </div>
  );
}
