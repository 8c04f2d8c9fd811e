import { Field } from "@/widgets/field/Field";
import styles from "./QuotaFields.module.css";
import { QUOTA_FIELDS, type QuotaTexts } from "./quotas";

interface Props {
  texts: QuotaTexts;
  onChange: (texts: QuotaTexts) => void;
}

/** One input for each quota; an empty one is no limit. */
export function QuotaFields({ texts, onChange }: Props) {
  return (
    <div className={styles.fields}>
      {QUOTA_FIELDS.map(({ name, label, hint }) => (
        <Field key={name} label={label} hint={hint}>
          <input
            type="number"
            min="0"
            step="any"
            inputMode="decimal"
            placeholder={name === "weight" ? "1" : "no limit"}
            value={texts[name]}
            onChange={(event) => onChange({ ...texts, [name]: event.target.value })}
          />
        </Field>
      ))}
    </div>
  );
}
