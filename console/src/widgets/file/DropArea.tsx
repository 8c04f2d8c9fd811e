import { type DragEvent, type ReactNode, useState } from "react";
import styles from "./DropArea.module.css";

interface Props {
  onFiles: (files: readonly File[]) => void;
  children: ReactNode;
  className?: string;
}

/** Takes files that are dropped anywhere on a page, which the browser would open instead. A `FilesButton` in it does the
    same for a keyboard. */
export function DropArea({ onFiles, children, className = "" }: Props) {
  const [isOver, setOver] = useState(false);
  const over = (event: DragEvent) => {
    event.preventDefault();
    setOver(true);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    onFiles([...event.dataTransfer.files]);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a place for files, with a button in it.
    <div
      className={`${styles.area} ${isOver ? styles.over : ""} ${className}`}
      onDragOver={over}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      {children}
    </div>
  );
}
