import type { Column } from "./column";

/** A column of numbers, in which null is a dash and sorts as the least. */
export function numberColumn<Row>(
  id: string,
  header: string,
  width: number,
  value: (row: Row) => number | null | undefined,
  format: (value: number) => string,
): Column<Row> {
  const cell = (row: Row) => {
    const number = value(row);
    return number == null ? "–" : format(number);
  };
  return { id, header, width, align: "end", cell, sortBy: (row) => value(row) ?? -1 };
}
