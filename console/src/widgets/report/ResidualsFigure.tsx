import { useMemo } from "react";
import { Chart } from "@/widgets/chart/Chart";
import { useChartColors } from "@/widgets/chart/colors";
import type { ChartOption } from "@/widgets/chart/echarts";
import { Figure } from "@/widgets/figure/Figure";
import { significant } from "@/widgets/format/numbers";
import type { Report } from "./report";

const HEIGHT = 220;

/** Answers against labels of a regression. */
export function ResidualsFigure({ residuals }: { residuals: NonNullable<Report["residuals"]> }) {
  const colors = useChartColors();
  const { gold, found, mean, sd } = residuals;
  const option = useMemo((): ChartOption => {
    const axisLabel = { color: colors.muted };
    const splitLine = { lineStyle: { color: colors.line } };
    return {
      grid: { left: 8, right: 14, top: 10, bottom: 22, containLabel: true },
      xAxis: { type: "value", scale: true, name: "label", nameLocation: "middle", nameGap: 24, axisLabel, splitLine },
      yAxis: { type: "value", scale: true, axisLabel, splitLine },
      series: [
        { type: "scatter", symbolSize: 5, itemStyle: { opacity: 0.5 }, data: gold.map((one, n) => [one, found[n]]) },
      ],
    };
  }, [gold, found, colors]);
  return (
    <Figure title={`Answers by labels; off by ${text(mean)} on average, sd ${text(sd)}`}>
      <Chart option={option} height={HEIGHT} label={`${gold.length} answers against their labels`} />
    </Figure>
  );
}

function text(value: number | null): string {
  return value === null ? "–" : significant(value);
}
