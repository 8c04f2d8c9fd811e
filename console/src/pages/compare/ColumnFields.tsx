import type { Table } from "@/rows/table";
import { Field } from "@/widgets/field/Field";
import type { Columns } from "./columns";
import styles from "./compare.module.css";

interface Props {
  table: Table;
  columns: Columns;
  onChange: (columns: Columns) => void;
}

/** Which columns of the table are read. */
export function ColumnFields({ table, columns, onChange }: Props) {
  const { texts, label } = columns;
  const setText = (place: number, name: string) => {
    onChange({ label, texts: texts.map((own, at) => (at === place ? name : own)) });
  };
  return (
    <div className={styles.columns}>
      {texts.map((text, place) => {
        const name = texts.length === 1 ? "Text column" : `Text column ${place + 1}`;
        return (
          <Choice key={name} label={name} value={text} names={table.columns} onSet={(own) => setText(place, own)} />
        );
      })}
      <Choice
        label="Label column"
        value={label}
        names={table.columns}
        onSet={(own) => onChange({ texts, label: own })}
      />
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  names: readonly string[];
  onSet: (name: string) => void;
}

function Choice({ label, value, names, onSet }: ChoiceProps) {
  return (
    <Field label={label}>
      <select value={value} onChange={(event) => onSet(event.target.value)}>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </Field>
  );
}
