import { Field } from "@/widgets/field/Field";
import styles from "./form.module.css";
import type { InputForm } from "./inputForm";

interface Props {
  form: InputForm;
  texts: readonly string[];
  onChange: (texts: readonly string[]) => void;
}

/** The texts of an input, as the kind of the task wants them. */
export function InputFields({ form, texts, onChange }: Props) {
  return form.fields.map(({ label, hint, rows, placeholder }, place) => (
    <Field key={label} label={label} hint={hint}>
      <textarea
        className={styles.text}
        rows={rows}
        placeholder={placeholder}
        value={texts[place] ?? ""}
        onFocus={() => {
          // No example comes into a field in which the visitor begins to write.
          if (!texts.some(Boolean)) onChange(form.fields.map(() => ""));
        }}
        onChange={(event) => {
          const next = form.fields.map((_, own) => texts[own] ?? "");
          next[place] = event.target.value;
          onChange(next);
        }}
      />
    </Field>
  ));
}
