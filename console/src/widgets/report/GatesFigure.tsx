import { HeatMap } from "@/widgets/chart/HeatMap";
import { Figure } from "@/widgets/figure/Figure";
import { counted } from "@/widgets/format/numbers";
import type { Report } from "./report";

/** The gates of UniPELT by part and layer. */
export function GatesFigure({ gates: { means, rows } }: { gates: NonNullable<Report["gates"]> }) {
  const parts = Object.keys(means);
  const layers = Math.max(0, ...Object.values(means).map((values) => values.length));
  return (
    <Figure title={`Gates, mean of ${counted(rows, "row")}`} isWide>
      <HeatMap
        values={parts.map((part) => (means[part] ?? []).map((value) => value ?? 0))}
        rows={parts}
        columns={Array.from({ length: layers }, (_, layer) => `layer ${layer + 1}`)}
        range={[0, 1]}
        label={`Mean gates of ${parts.join(", ")} in ${layers} layers`}
      />
    </Figure>
  );
}
