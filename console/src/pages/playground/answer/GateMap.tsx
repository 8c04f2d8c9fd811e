import { useMemo } from "react";
import type { Prediction } from "@/api/predictions";
import { HeatMap } from "@/widgets/chart/HeatMap";
import styles from "@/widgets/panel/Panel.module.css";
import { gateMatrix, meanGates } from "../gates";

const RANGE = [0, 1] as const;

/** The gates of one answer, of each part in each block; a sentence if the adapter has none. */
export default function GateMap({ prediction }: { prediction: Prediction }) {
  const gates = "gates" in prediction ? prediction.gates : undefined;
  const matrix = useMemo(() => gateMatrix(gates), [gates]);
  if (!matrix) {
    return <p className={styles.note}>This adapter has no gates. Those of UniPELT have one for each part and block.</p>;
  }
  const means = meanGates(matrix).map(({ part, mean }) => `${part} ${mean.toFixed(2)}`);
  return (
    <figure>
      <HeatMap
        values={matrix.values}
        rows={matrix.parts}
        columns={matrix.blocks}
        range={RANGE}
        label={`Gates by part and block. Means: ${means.join(", ")}.`}
      />
      <figcaption className={styles.note}>Columns are blocks. Mean of each part: {means.join(", ")}.</figcaption>
    </figure>
  );
}
