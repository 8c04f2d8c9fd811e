import { useMemo } from "react";
import { HeatMap } from "@/widgets/chart/HeatMap";
import styles from "@/widgets/panel/Panel.module.css";
import { similarities } from "../similarity";

interface Props {
  texts: readonly string[];
  vectors: readonly (readonly number[])[];
}

const MAX_NAME = 28;
const RANGE = [0, 1] as const;

/** How similar the texts are to each other: the cosine of each pair of embeddings. */
export default function SimilarityMap({ texts, vectors }: Props) {
  const values = useMemo(() => similarities(vectors), [vectors]);
  const range = useMemo(() => [Math.min(RANGE[0], ...values.flat()), RANGE[1]] as const, [values]);
  const rows = useMemo(() => texts.map((text, place) => `${place + 1} ${shortened(text)}`), [texts]);
  const columns = useMemo(() => texts.map((_, place) => String(place + 1)), [texts]);
  return (
    <figure>
      <HeatMap values={values} rows={rows} columns={columns} range={range} label={sentence(texts, values)} />
      <figcaption className={styles.note}>Cosine of each pair. {sentence(texts, values)}</figcaption>
    </figure>
  );
}

function shortened(text: string): string {
  const characters = [...text];
  return characters.length > MAX_NAME ? `${characters.slice(0, MAX_NAME - 1).join("")}…` : text;
}

function sentence(texts: readonly string[], values: readonly (readonly number[])[]): string {
  const pairs = values.flatMap((row, first) =>
    row.slice(first + 1).map((value, place) => ({ value, first, second: first + 1 + place })),
  );
  const best = pairs.reduce((one, other) => (other.value > one.value ? other : one), {
    value: -2,
    first: 0,
    second: 0,
  });
  return `Of ${texts.length} texts, ${best.first + 1} and ${best.second + 1} are the most similar (${best.value.toFixed(3)}).`;
}
