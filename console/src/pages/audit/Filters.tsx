import { Button } from "@/widgets/button/Button";
import { Field } from "@/widgets/field/Field";
import { ACTIONS } from "./actions";
import styles from "./Filters.module.css";
import { changed, FIELDS, type FieldName } from "./filter";

interface Props {
  query: URLSearchParams;
  onChange: (query: URLSearchParams) => void;
}

/** Which records are shown. */
export function Filters({ query, onChange }: Props) {
  const set = (name: FieldName) => (event: { target: { value: string } }) =>
    onChange(changed(query, name, event.target.value));
  const value = (name: FieldName) => query.get(name) ?? "";
  return (
    <search className={styles.filters}>
      <Field label="Tenant">
        <input value={value("tenant")} onChange={set("tenant")} placeholder="all" spellCheck={false} />
      </Field>
      <Field label="Action">
        <select value={value("action")} onChange={set("action")}>
          <option value="">all</option>
          {ACTIONS.map((action) => (
            <option key={action}>{action}</option>
          ))}
        </select>
      </Field>
      <Field label="Actor">
        <input value={value("actor")} onChange={set("actor")} placeholder="key:abcdefgh" spellCheck={false} />
      </Field>
      <Field label="From">
        <input type="datetime-local" value={value("since")} onChange={set("since")} />
      </Field>
      <Field label="Before">
        <input type="datetime-local" value={value("until")} onChange={set("until")} />
      </Field>
      <Button onClick={() => onChange(new URLSearchParams())} disabled={!FIELDS.some((name) => query.get(name))}>
        Clear
      </Button>
    </search>
  );
}
