import type { Comparison } from "@/api/comparisons";
import { PairTable } from "./PairTable";

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
    return { name: label, a: a?.f1 ?? 0, b: b?.f1 ?? 0, last: String(a?.support ?? b?.support ?? 0) };
  });
  rows.sort((one, other) => Math.abs(other.b - other.a) - Math.abs(one.b - one.a));
  return (
    <PairTable
      title="F1 of labels"
      head={["label", "rows"]}
      references={references}
      rows={rows.slice(0, MAX_SHOWN)}
      note={rows.length > MAX_SHOWN && `The ${MAX_SHOWN} of ${rows.length} labels that differ most.`}
    />
  );
}
