import { useMemo } from "react";
import { type Theme, useTheme } from "@/app/theme";

/** The colours of the theme as values, for what is drawn on a canvas. */
export interface ChartColors {
  theme: Theme;
  text: string;
  muted: string;
  line: string;
  raised: string;
  good: string;
  warn: string;
  bad: string;
  heatLow: string;
  heatHigh: string;
  font: string;
  series: string[];
}

export function useChartColors(): ChartColors {
  const theme = useTheme();
  return useMemo(() => colorsOf(theme), [theme]);
}

function colorsOf(theme: Theme): ChartColors {
  const style = getComputedStyle(document.documentElement);
  const value = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    theme,
    text: value("text"),
    muted: value("muted"),
    line: value("line"),
    raised: value("raised"),
    good: value("good"),
    warn: value("warn"),
    bad: value("bad"),
    heatLow: value("heat-low"),
    heatHigh: value("heat-high"),
    font: value("font"),
    series: [1, 2, 3, 4, 5, 6, 7, 8].map((number) => value(`series-${number}`)),
  };
}
