// Numbers as text, in the visitor's language.

const WHOLE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const COMPACT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const BYTE_UNITS = ["B", "KB", "MB", "GB", "TB"];

/** 12,345 */
export function whole(value: number): string {
  return WHOLE.format(value);
}

/** 12.3K */
export function compact(value: number): string {
  return COMPACT.format(value);
}

/** “1 row”, “12,345 rows”; a noun whose plural has no -s is not for this. */
export function counted(value: number, noun: string, format: (value: number) => string = whole): string {
  const text = format(value);
  return `${text} ${text === format(1) ? noun : `${noun}s`}`;
}

/** `value` with about `digits` significant digits. */
export function significant(value: number, digits = 3): string {
  return new Intl.NumberFormat(undefined, { maximumSignificantDigits: digits }).format(value);
}

/** 0.873 → 87.3 % */
export function percent(share: number, digits = 1): string {
  return new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: digits }).format(share);
}

/** Decimal units: 1 MB is 1,000,000 bytes. */
export function bytes(value: number): string {
  let size = value;
  let unit = 0;
  while (size >= 999.5 && unit < BYTE_UNITS.length - 1) {
    size /= 1_000;
    unit += 1;
  }
  return `${significant(size)} ${BYTE_UNITS[unit]}`;
}

/** A duration in seconds as “8.4 ms” or “1.2 s”. */
export function duration(seconds: number): string {
  return seconds < 0.9995 ? `${significant(seconds * 1_000)} ms` : `${significant(seconds)} s`;
}
