import { useMemo } from "react";
import { Chart } from "@/widgets/chart/Chart";
import { useChartColors } from "@/widgets/chart/colors";
import { Figure } from "@/widgets/figure/Figure";
import type { Point } from "./point";
import { type Line, linesOption } from "./series";

interface Props {
  title: string;
  points: readonly Point[];
  lines: readonly Line[];
  format: (value: number) => string;
  isStacked?: boolean;
  /** What a line that is always empty means. */
  empty?: string;
}

const HEIGHT = 190;

/** A chart of lines over time with its title. */
export function LineFigure({ title, points, lines, format, isStacked = false, empty }: Props) {
  const colors = useChartColors();
  const option = useMemo(
    () => linesOption(points, lines, colors, { isStacked, format }),
    [points, lines, colors, isStacked, format],
  );
  const isEmpty = lines.length === 0 || points.every((point) => lines.every(({ value }) => value(point) === null));
  return (
    <Figure title={title}>
      {isEmpty ? (
        <Figure.Nothing height={HEIGHT}>{empty ?? "Nothing happened in this time."}</Figure.Nothing>
      ) : (
        <Chart option={option} height={HEIGHT} label={`${title}: ${described(points.at(-1), lines, format)}`} />
      )}
    </Figure>
  );
}

function described(last: Point | undefined, lines: readonly Line[], format: (value: number) => string): string {
  const now = lines.map(({ name, value }) => {
    const number = last ? value(last) : null;
    return `${name} ${number === null ? "none" : format(number)}`;
  });
  return `now ${now.join(", ")}`;
}
