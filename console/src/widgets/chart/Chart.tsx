import { useEffect, useRef } from "react";
import { useChartColors } from "./colors";
import { type ChartOption, type EChartsType, init } from "./echarts";

interface Props {
  /** An ECharts option. It is merged over the colours and fonts of the theme; keep it stable with `useMemo`. */
  option: ChartOption;
  /** What the chart shows, in a sentence, for those who do not see it. */
  label: string;
  /** In CSS pixels. */
  height: number;
}

/** One chart on a canvas. It follows the size of its place and the theme. */
export function Chart({ option, label, height }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<EChartsType>(null);
  const colors = useChartColors();

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const drawn = init(element, null, { renderer: "canvas" });
    chart.current = drawn;
    const observer = new ResizeObserver(() => drawn.resize());
    observer.observe(element);
    return () => {
      observer.disconnect();
      drawn.dispose();
      chart.current = null;
    };
  }, []);

  useEffect(() => {
    const shown = chart.current;
    // Components that an option no longer has go away, as the number of series changes.
    shown?.setOption(themed(colors), { notMerge: true });
    shown?.setOption(option, { lazyUpdate: false });
  }, [option, colors]);

  return <div ref={place} role="img" aria-label={label} style={{ height }} />;
}

function themed(colors: ReturnType<typeof useChartColors>): ChartOption {
  return {
    animation: false,
    color: colors.series,
    textStyle: { color: colors.text, fontFamily: colors.font },
    // On the canvas: HTML tooltips have style attributes, which the content security policy refuses.
    tooltip: {
      renderMode: "richText",
      confine: true,
      backgroundColor: colors.raised,
      borderColor: colors.line,
      textStyle: { color: colors.text, fontFamily: colors.font, fontSize: 12 },
    },
  };
}
