import { useState } from "react";
import { readTextFile } from "@/rows/file";
import styles from "./FileButton.module.css";
import { FilesButton } from "./FilesButton";

interface Props {
  label: string;
  /** As the attribute `accept` of a file input. */
  accept: string;
  onText: (text: string, name: string) => void;
}

/** Reads the text of a file that the visitor chooses; `.gz` is unpacked. */
export function FileButton({ label, accept, onText }: Props) {
  const [problem, setProblem] = useState("");
  const read = async (file: File | undefined) => {
    if (!file) return;
    setProblem("");
    await readTextFile(file).then(
      (text) => onText(text, file.name),
      (error: Error) => setProblem(`${file.name} cannot be read: ${error.message}`),
    );
  };
  return (
    <>
      <FilesButton label={label} what={label} accept={accept} isSingle onFiles={([file]) => void read(file)} />
      {problem && (
        <span className={styles.problem} role="alert">
          {problem}
        </span>
      )}
    </>
  );
}
