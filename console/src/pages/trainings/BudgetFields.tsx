import { Field } from "@/widgets/field/Field";
import styles from "./NewTraining.module.css";
import type { Form } from "./newTraining";

interface Props {
  form: Form;
  onChange: (values: Partial<Form>) => void;
}

/** How long the training may take. */
export function BudgetFields({ form, onChange }: Props) {
  return (
    <div className={styles.budget}>
      <Field label="Budget" hint="Empty: no limit.">
        <input
          type="number"
          min="0"
          step="any"
          inputMode="decimal"
          placeholder="no limit"
          value={form.budget}
          onChange={({ target }) => onChange({ budget: target.value })}
        />
      </Field>
      <select
        aria-label="Unit of the budget"
        value={form.unit}
        onChange={({ target }) => onChange({ unit: target.value as Form["unit"] })}
      >
        <option>minutes</option>
        <option>steps</option>
      </select>
    </div>
  );
}
