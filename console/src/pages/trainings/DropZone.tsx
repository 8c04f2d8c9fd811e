import { type DragEvent, type ReactNode, useState } from "react";
import styles from "./DropZone.module.css";

interface Props {
  onFiles: (files: FileList) => void;
  children: ReactNode;
}

/** Takes files that are dropped anywhere on the page. The button of the page does the same for a keyboard. */
export function DropZone({ onFiles, children }: Props) {
  const [isOver, setOver] = useState(false);
  const over = (event: DragEvent) => {
    event.preventDefault();
    setOver(true);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    onFiles(event.dataTransfer.files);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a place for files, with a button beside it.
    <div
      id="drop-report"
      className={`${styles.zone} ${isOver ? styles.over : ""}`}
      onDragOver={over}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      {children}
    </div>
  );
}
