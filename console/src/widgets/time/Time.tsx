import { instant, relative } from "./format";

interface Props {
  /** ISO 8601, as the server writes it. */
  value: string;
  /** Shows how long ago it was; the full time is in the tooltip. */
  isRelative?: boolean;
}

/** A point in time in the visitor's zone and language. */
export function Time({ value, isRelative = false }: Props) {
  const date = new Date(value);
  const full = instant(date);
  return (
    <time dateTime={value} title={full}>
      {isRelative ? relative(date) : full}
    </time>
  );
}
