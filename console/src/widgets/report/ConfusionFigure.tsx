import { useMemo } from "react";
import { HeatMap } from "@/widgets/chart/HeatMap";
import { Figure } from "@/widgets/figure/Figure";
import { PlainTable } from "./PlainTable";
import type { Confusion } from "./report";

const MAX_CONFUSIONS = 15;
const SMALL_ROW = 6;
const ROW = 26;
const MANY_LABELS = 24;

/** Labels against answers as shares of each label's rows, and the most frequent mistakes. */
export function ConfusionFigure({ confusion }: { confusion: Confusion }) {
  const { labels, matrix } = useMemo(() => usedLabels(confusion), [confusion]);
  const shares = useMemo(() => sharesOf(matrix), [matrix]);
  return (
    <>
      <Figure title="Confusion: label by answer, shares of a label's rows" isWide>
        <HeatMap
          values={shares}
          rows={labels}
          columns={labels}
          range={[0, 1]}
          rowHeight={labels.length > MANY_LABELS ? SMALL_ROW : ROW}
          label={`Confusion matrix of ${labels.length} labels`}
        />
      </Figure>
      <Figure title="Most frequent confusions">
        <PlainTable head={["Label", "Answer", "Rows"]} texts={2} rows={mostConfused(confusion)} />
      </Figure>
    </>
  );
}

/** Without the labels that no row has and no answer is. */
function usedLabels({ labels, matrix }: Confusion): Confusion {
  const isUsed = labels.map((_, place) =>
    matrix.some((row, i) => (row[place] ?? 0) > 0 || (i === place && row.some(Boolean))),
  );
  const kept = <One,>(values: readonly One[]) => values.filter((_, place) => isUsed[place]);
  return { labels: kept(labels), matrix: kept(matrix).map(kept) };
}

function sharesOf(matrix: Confusion["matrix"]): number[][] {
  return matrix.map((row) => {
    const rows = row.reduce((all, count) => all + count, 0);
    return row.map((count) => (rows > 0 ? count / rows : 0));
  });
}

function mostConfused({ labels, matrix }: Confusion): string[][] {
  return matrix
    .flatMap((row, i) => row.map((count, j) => ({ label: labels[i] ?? "", answer: labels[j] ?? "", count, i, j })))
    .filter(({ count, i, j }) => i !== j && count > 0)
    .sort((a, b) => b.count - a.count)
    .slice(0, MAX_CONFUSIONS)
    .map(({ label, answer, count }) => [label, answer, String(count)]);
}
