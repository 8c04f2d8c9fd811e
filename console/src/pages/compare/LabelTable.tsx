import type { Comparison } from "@/quality/comparison";
import panel from "@/widgets/panel/Panel.module.css";
import styles from "./compare.module.css";

interface Props {
  found: Comparison;
  references: readonly [string, string];
}

const MAX_SHOWN = 8;

/** The labels whose F1 differs most. */
export function LabelTable({ found, references }: Props) {
  const labels = Object.keys({ ...found.first.classes, ...found.second.classes });
  if (labels.length === 0) return null;
  const rows = labels.map((label) => {
    const [a, b] = [found.first.classes[label], found.second.classes[label]];
    return { label, a: a?.f1 ?? 0, b: b?.f1 ?? 0, support: a?.support ?? b?.support ?? 0 };
  });
  rows.sort((one, other) => Math.abs(other.b - other.a) - Math.abs(one.b - one.a));
  return (
    <section className={panel.panel} aria-label="F1 of labels">
      <h2>F1 of labels</h2>
      <table className={styles.table}>
        <thead>
          <tr>
            <th scope="col">label</th>
            {references.map((reference) => (
              <th key={reference} scope="col">
                {reference}
              </th>
            ))}
            <th scope="col">rows</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MAX_SHOWN).map(({ label, a, b, support }) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              <td>{a.toFixed(4)}</td>
              <td>{b.toFixed(4)}</td>
              <td>{support}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MAX_SHOWN && (
        <p className={panel.note}>
          The {MAX_SHOWN} of {rows.length} labels that differ most.
        </p>
      )}
    </section>
  );
}
