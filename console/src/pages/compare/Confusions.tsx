import { useMemo } from "react";
import { HeatMap } from "@/widgets/chart/HeatMap";
import panel from "@/widgets/panel/Panel.module.css";
import { shownAs } from "./answers";
import styles from "./compare.module.css";
import { confusedLabels, confusionOf, occurringLabels } from "./confusion";
import type { Judged } from "./judge";

interface Props {
  judged: Judged;
  names: readonly string[];
  references: readonly [string, string];
}

const MAX_LABELS = 24;
const DENSE_LABELS = 16;

/** The confusion matrices of both versions, side by side with the same axes. */
export default function Confusions({ judged, names, references }: Props) {
  const { labels, isCut, matrices, most } = useMemo(() => {
    const { comparison, cases } = judged;
    const gold = comparison.labels.map((label) => shownAs("classification", label));
    const answers = ([0, 1] as const).map((side) => cases.map((one) => shownAs("classification", one.answers[side])));
    const all = occurringLabels(gold, answers, names);
    const labels = all.length > MAX_LABELS ? confusedLabels(all, gold, answers, MAX_LABELS) : all;
    const matrices = answers.map((shown) => confusionOf(labels, gold, shown).counts);
    return { labels, isCut: labels.length < all.length, matrices, most: Math.max(1, ...matrices.flat(2)) };
  }, [judged, names]);
  const range = useMemo(() => [0, most] as const, [most]);
  return (
    <section className={panel.panel} aria-label="Confusion matrices">
      <h2>Confusion matrices</h2>
      <div className={styles.matrices}>
        {matrices.map((counts, side) => (
          <figure key={references[side]}>
            <figcaption className={styles.caption}>{references[side]}</figcaption>
            <HeatMap
              values={counts}
              rows={labels}
              columns={labels}
              range={range}
              digits={0}
              rowHeight={labels.length > DENSE_LABELS ? 18 : 26}
              label={`Confusion matrix of ${references[side]}: ${diagonal(counts)} rows on the diagonal are right.`}
            />
          </figure>
        ))}
      </div>
      <p className={panel.note}>
        Rows are right labels, columns answers.
        {isCut && ` The ${labels.length} labels that are confused most are shown.`}
      </p>
    </section>
  );
}

function diagonal(counts: readonly (readonly number[])[]): number {
  return counts.reduce((total, row, place) => total + (row[place] ?? 0), 0);
}
