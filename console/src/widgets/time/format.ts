// Times as text, in the visitor's zone and language.

const FULL = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const AGO = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const UNITS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** Date, time and zone. */
export function instant(date: Date): string {
  return Number.isNaN(date.getTime()) ? "unknown" : FULL.format(date);
}

/** Hours, minutes and seconds, for the axis of a chart. */
export function clock(date: Date): string {
  return CLOCK.format(date);
}

/** “3 min. ago”. */
export function relative(date: Date, now: number = Date.now()): string {
  if (Number.isNaN(date.getTime())) return "unknown";
  const seconds = (date.getTime() - now) / 1_000;
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) return AGO.format(Math.round(seconds / size), unit);
  }
  return AGO.format(Math.round(seconds), "second");
}
