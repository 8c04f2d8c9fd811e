import { Field } from "@/widgets/field/Field";
import styles from "./form.module.css";
import type { ParameterField, ParameterValues } from "./parameters";

interface Props {
  fields: readonly ParameterField[];
  values: ParameterValues;
  onChange: (values: ParameterValues) => void;
}

/** The parameters of a prediction; what is left empty has the server's default. */
export function ParametersForm({ fields, values, onChange }: Props) {
  const set = (name: string, value: string | boolean) => onChange({ ...values, [name]: value });
  const given = fields.filter(({ name }) => values[name]).length;
  return (
    <details className={styles.parameters}>
      <summary>Parameters{given > 0 && ` (${given})`}</summary>
      <div className={styles.grid}>
        {fields.map((field) => (
          <Control key={field.name} field={field} value={values[field.name]} onSet={set} />
        ))}
      </div>
    </details>
  );
}

interface ControlProps {
  field: ParameterField;
  value: string | boolean | undefined;
  onSet: (name: string, value: string | boolean) => void;
}

function Control({ field: { name, label, kind, choices, hint }, value, onSet }: ControlProps) {
  if (kind === "boolean") {
    return (
      <label className={styles.check} title={hint}>
        <input type="checkbox" checked={value === true} onChange={(event) => onSet(name, event.target.checked)} />
        {label}
      </label>
    );
  }
  const text = typeof value === "string" ? value : "";
  return (
    <Field label={label}>
      {kind === "choice" ? (
        <select value={text} onChange={(event) => onSet(name, event.target.value)}>
          <option value="">{hint}</option>
          {choices?.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      ) : (
        <input
          type="number"
          step={kind === "integer" ? 1 : "any"}
          placeholder={hint}
          value={text}
          onChange={(event) => onSet(name, event.target.value)}
        />
      )}
    </Field>
  );
}
