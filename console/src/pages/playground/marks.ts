// The marked parts of a text. The server counts characters as Python does, in code points.

export interface Mark {
  start: number;
  end: number;
  label: string;
  score: number;
}

export interface Segment {
  /** Where the segment begins, in code points. */
  start: number;
  text: string;
  /** Absent between marks. */
  mark?: Mark;
}

/** `text` cut at the marks, in order. A mark that begins inside the one before it is left out. */
export function segments(text: string, marks: readonly Mark[]): Segment[] {
  const characters = [...text];
  const cut = (start: number, end: number) => characters.slice(start, end).join("");
  const found: Segment[] = [];
  let read = 0;
  for (const mark of [...marks].sort((a, b) => a.start - b.start)) {
    if (mark.start < read || mark.end <= mark.start) continue;
    if (mark.start > read) found.push({ start: read, text: cut(read, mark.start) });
    found.push({ start: mark.start, text: cut(mark.start, mark.end), mark });
    read = mark.end;
  }
  if (read < characters.length) found.push({ start: read, text: cut(read, characters.length) });
  return found;
}
