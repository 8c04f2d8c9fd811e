import { useMemo } from "react";
import { significant } from "@/widgets/format/numbers";
import { Chart } from "./Chart";
import { type ChartColors, useChartColors } from "./colors";
import type { ChartOption } from "./echarts";

interface Props {
  /** `values[row][column]`; null where there is none. */
  values: readonly (readonly (number | null)[])[];
  rows: readonly string[];
  columns: readonly string[];
  /** The values of the lightest and of the darkest colour. */
  range: readonly [number, number];
  /** What is shown, in a sentence, for those who do not see it. */
  label: string;
  /** The height of a row in CSS pixels. */
  rowHeight?: number;
  /** Digits after the point of the written values. */
  digits?: number;
}

const AXES_HEIGHT = 92;
const MAX_NUMBERED_COLUMNS = 16;

/** A matrix as colours: the gates of a text, the similarities of several. */
export function HeatMap({ values, rows, columns, range, label, rowHeight = 26, digits = 2 }: Props) {
  const colors = useChartColors();
  const option = useMemo(
    () => optionOf(values, rows, columns, range, { colors, digits }),
    [values, rows, columns, range, colors, digits],
  );
  return <Chart option={option} label={label} height={rows.length * rowHeight + AXES_HEIGHT} />;
}

function optionOf(
  values: Props["values"],
  rows: readonly string[],
  columns: readonly string[],
  [min, max]: Props["range"],
  { colors, digits }: { colors: ChartColors; digits: number },
): ChartOption {
  // Written on the darker half of the scale in the colour of the page.
  const ink = (value: number) => (value - min > (max - min) / 2 ? colors.raised : colors.text);
  const axis = { axisTick: { show: false }, axisLine: { show: false }, splitArea: { show: false } };
  return {
    grid: { left: 8, right: 8, top: 8, bottom: 44, containLabel: true },
    xAxis: { type: "category", data: [...columns], axisLabel: { color: colors.muted, hideOverlap: true }, ...axis },
    yAxis: { type: "category", data: [...rows], inverse: true, axisLabel: { color: colors.muted }, ...axis },
    visualMap: {
      min,
      max,
      calculable: false,
      orient: "horizontal",
      left: "center",
      bottom: 0,
      itemHeight: 120,
      itemWidth: 10,
      textStyle: { color: colors.muted },
      text: [significant(max), significant(min)],
      inRange: { color: [colors.heatLow, colors.heatHigh] },
    },
    tooltip: { formatter: ({ value }: { value: [number, number, number] }) => cellText(value, rows, columns) },
    series: [
      {
        type: "heatmap",
        // All cells at once; otherwise a large matrix appears row by row.
        progressive: 0,
        data: values.flatMap((row, y) =>
          row.flatMap((value, x) => (value === null ? [] : [{ value: [x, y, value], label: { color: ink(value) } }])),
        ),
        label: {
          show: columns.length <= MAX_NUMBERED_COLUMNS,
          formatter: ({ value }: { value: [number, number, number] }) => value[2].toFixed(digits),
        },
        itemStyle: { borderColor: colors.raised, borderWidth: 1 },
      },
    ],
  };
}

function cellText(
  [x, y, value]: [number, number, number],
  rows: readonly string[],
  columns: readonly string[],
): string {
  return `${rows[y]} · ${columns[x]}: ${significant(value)}`;
}
