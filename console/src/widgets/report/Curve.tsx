import { useMemo } from "react";
import { Chart } from "@/widgets/chart/Chart";
import { type ChartColors, useChartColors } from "@/widgets/chart/colors";
import type { ChartOption } from "@/widgets/chart/echarts";
import { Figure } from "@/widgets/figure/Figure";
import { significant } from "@/widgets/format/numbers";
import type { CurvePoint } from "./report";

const HEIGHT = 170;
const MAX_MARKED = 25;

interface Props {
  name: string;
  points: readonly CurvePoint[];
  best: number | null;
}

/** A chart of one curve over epochs, with a mark at the step `best`. */
export function Curve({ name, points, best }: Props) {
  const colors = useChartColors();
  const option = useMemo(() => curveOption(points, best, colors), [points, best, colors]);
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return null;
  const label = `${name} from ${text(first.value)} to ${text(last.value)} at epoch ${significant(last.epoch)}`;
  return (
    <Figure title={name}>
      {points.length === 1 ? <p>{text(first.value)}</p> : <Chart option={option} height={HEIGHT} label={label} />}
    </Figure>
  );
}

function curveOption(points: readonly CurvePoint[], best: number | null, colors: ChartColors): ChartOption {
  const kept = points.filter(({ step }) => step === best);
  const place = ({ epoch, value }: CurvePoint) => [epoch, value];
  const axisLabel = { color: colors.muted, hideOverlap: true, formatter: (value: number) => significant(value) };
  return {
    grid: { left: 4, right: 14, top: 10, bottom: 4, containLabel: true },
    xAxis: {
      type: "value",
      min: 0,
      axisLabel,
      splitLine: { show: false },
      axisLine: { lineStyle: { color: colors.line } },
    },
    yAxis: { type: "value", scale: true, splitNumber: 3, axisLabel, splitLine: { lineStyle: { color: colors.line } } },
    tooltip: { trigger: "axis", valueFormatter: text },
    series: [
      { type: "line", showSymbol: points.length < MAX_MARKED, data: points.map(place), lineStyle: { width: 1.6 } },
      { type: "scatter", name: "kept", symbolSize: 11, data: kept.map(place) },
    ],
  };
}

function text(value: unknown): string {
  return typeof value === "number" ? significant(value, 4) : "–";
}
