import { type ChangeEvent, type DragEvent, useId, useRef, useState } from "react";
import { Button } from "@/widgets/button/Button";
import styles from "./upload.module.css";

/** Takes files that are dropped on it, or chosen with its button. */
export function DropZone({ onFiles }: { onFiles: (files: readonly File[]) => void }) {
  const [isOver, setIsOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setIsOver(false);
    onFiles([...event.dataTransfer.files]);
  };
  const choose = (event: ChangeEvent<HTMLInputElement>) => {
    onFiles([...(event.target.files ?? [])]);
    // The same file can be chosen again.
    event.target.value = "";
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the button does the same for a keyboard.
    <div
      className={styles.zone}
      id="drop"
      data-over={isOver}
      onDragOver={(event) => {
        event.preventDefault();
        setIsOver(true);
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={drop}
    >
      <p>Drop artifacts here</p>
      <Button onClick={() => input.current?.click()}>Choose files…</Button>
      <label htmlFor={id} className="visually-hidden">
        Artifacts
      </label>
      <input ref={input} id={id} type="file" accept=".safetensors" multiple hidden onChange={choose} />
    </div>
  );
}
