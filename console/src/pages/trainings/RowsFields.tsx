import { Button } from "@/widgets/button/Button";
import { Field } from "@/widgets/field/Field";
import { DropArea } from "@/widgets/file/DropArea";
import { FilesButton } from "@/widgets/file/FilesButton";
import { bytes } from "@/widgets/format/numbers";
import styles from "./NewTraining.module.css";
import { columnsOf, type Form } from "./newTraining";

interface Props {
  form: Form;
  file: File | null;
  onChange: (values: Partial<Form>) => void;
  onFile: (file: File | null) => void;
}

/** The examples: a file, or pasted rows. */
export function RowsFields({ form, file, onChange, onFile }: Props) {
  const columns = columnsOf(form.type);
  return (
    <DropArea className={styles.rows} onFiles={([dropped]) => dropped && onFile(dropped)}>
      <h3>Examples</h3>
      <p className={styles.hint}>
        JSON lines, or a table whose first line names its columns: {columns.join(", ")}. A fifth of the rows validates.
      </p>
      {file ? (
        <p className={styles.file}>
          <span>
            <strong>{file.name}</strong>, {bytes(file.size)}
          </span>
          <Button kind="quiet" onClick={() => onFile(null)}>
            Remove
          </Button>
        </p>
      ) : (
        <>
          <p>
            <FilesButton
              label="Choose a file…"
              what="File of examples"
              accept=".jsonl,.csv,.tsv"
              isSingle
              onFiles={([chosen]) => chosen && onFile(chosen)}
            />{" "}
            <span className={styles.hint}>or drop it here</span>
          </p>
          <Field label="Or paste rows">
            <textarea
              rows={6}
              spellCheck={false}
              placeholder={`${columns.join(",")}\n…`}
              value={form.rows}
              onChange={({ target }) => onChange({ rows: target.value })}
            />
          </Field>
        </>
      )}
      <details>
        <summary>Other columns</summary>
        <div className={styles.fields}>
          <Field label="Text columns" hint="With commas between them.">
            <input
              value={form.textColumns}
              spellCheck={false}
              placeholder={columns.slice(0, -1).join(", ")}
              onChange={({ target }) => onChange({ textColumns: target.value })}
            />
          </Field>
          <Field label="Label column">
            <input
              value={form.labelColumn}
              spellCheck={false}
              placeholder={columns.at(-1)}
              onChange={({ target }) => onChange({ labelColumn: target.value })}
            />
          </Field>
        </div>
      </details>
    </DropArea>
  );
}
