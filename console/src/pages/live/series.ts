// Lines over time, as an ECharts option.
import type { ChartColors } from "@/widgets/chart/colors";
import type { ChartOption } from "@/widgets/chart/echarts";
import { clock } from "@/widgets/time/format";
import type { Point } from "./point";

export interface Line {
  name: string;
  value: (point: Point) => number | null;
}

const MAX_NAMED = 7;

/** The names with the largest sums over the points, and the sum of all others. */
export function topLines(points: readonly Point[], rates: (point: Point) => ReadonlyMap<string, number>): Line[] {
  const sums = new Map<string, number>();
  for (const point of points) {
    for (const [name, rate] of rates(point)) sums.set(name, (sums.get(name) ?? 0) + rate);
  }
  const used = [...sums].filter(([, sum]) => sum > 0).sort(([, a], [, b]) => b - a);
  const named = used.slice(0, MAX_NAMED).map(([name]) => name);
  const lines: Line[] = named.map((name) => ({ name, value: (point) => rates(point).get(name) ?? 0 }));
  if (used.length <= MAX_NAMED) return lines;
  const known = new Set(named);
  const rest = (point: Point) =>
    Array.from(rates(point)).reduce((all, [name, rate]) => all + (known.has(name) ? 0 : rate), 0);
  return [...lines, { name: "the rest", value: rest }];
}

interface Layout {
  /** Lines are drawn on top of each other, as parts of a sum. */
  isStacked?: boolean;
  format: (value: number) => string;
}

/** One line for each of `lines`, over the time of the points. */
export function linesOption(
  points: readonly Point[],
  lines: readonly Line[],
  colors: ChartColors,
  { isStacked = false, format }: Layout,
): ChartOption {
  const axis = {
    axisLabel: { color: colors.muted, hideOverlap: true },
    axisLine: { lineStyle: { color: colors.line } },
  };
  const isNamed = isStacked || lines.length > 1;
  return {
    grid: { left: 4, right: 12, top: 10, bottom: isNamed ? 30 : 4, containLabel: true },
    legend: isNamed
      ? { bottom: 0, left: 0, type: "scroll", itemWidth: 12, itemHeight: 8, textStyle: { color: colors.muted } }
      : undefined,
    xAxis: {
      type: "time",
      splitNumber: 3,
      ...axis,
      axisLabel: { ...axis.axisLabel, formatter: (at: number) => clock(new Date(at)) },
    },
    yAxis: {
      type: "value",
      min: 0,
      splitNumber: 3,
      axisLabel: { color: colors.muted, formatter: (value: number) => format(value) },
      splitLine: { lineStyle: { color: colors.line } },
    },
    tooltip: { trigger: "axis", valueFormatter: (value: unknown) => (typeof value === "number" ? format(value) : "–") },
    series: lines.map(({ name, value }) => ({
      name,
      type: "line",
      showSymbol: false,
      // Alone in a minute without traffic a point would be invisible.
      connectNulls: true,
      sampling: "lttb",
      lineStyle: { width: 1.6 },
      ...(isStacked ? { stack: "all", areaStyle: { opacity: 0.25 } } : {}),
      data: points.map((point) => [point.at, value(point)]),
    })),
  };
}
