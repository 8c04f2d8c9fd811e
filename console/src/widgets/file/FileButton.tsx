import { type ChangeEvent, useRef, useState } from "react";
import { readTextFile } from "@/rows/file";
import { Button } from "@/widgets/button/Button";
import styles from "./FileButton.module.css";

interface Props {
  label: string;
  /** As the attribute `accept` of a file input. */
  accept: string;
  onText: (text: string, name: string) => void;
}

/** Reads the text of a file that the visitor chooses; `.gz` is unpacked. */
export function FileButton({ label, accept, onText }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState("");
  const read = async (event: ChangeEvent<HTMLInputElement>) => {
    const file = event.target.files?.[0];
    event.target.value = "";
    if (!file) return;
    setProblem("");
    await readTextFile(file).then(
      (text) => onText(text, file.name),
      (error: Error) => setProblem(`${file.name} cannot be read: ${error.message}`),
    );
  };
  return (
    <>
      <Button onClick={() => input.current?.click()}>{label}</Button>
      <input ref={input} className={styles.input} type="file" accept={accept} aria-label={label} onChange={read} />
      {problem && (
        <span className={styles.problem} role="alert">
          {problem}
        </span>
      )}
    </>
  );
}
