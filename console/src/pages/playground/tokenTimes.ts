// When the pieces of a streamed text arrived.

export interface Piece {
  /** From 0. */
  place: number;
  text: string;
  /** Since the request was sent. */
  atMs: number;
}

export interface TokenTimes {
  firstMs: number;
  lastMs: number;
  /** Between two pieces. */
  gapsMs: readonly number[];
  medianGapMs: number;
  /** After the first piece; 0 with a single one. */
  piecesPerSecond: number;
}

/** Null without a piece. */
export function tokenTimes(pieces: readonly Piece[]): TokenTimes | null {
  const [first, last] = [pieces[0], pieces.at(-1)];
  if (!first || !last) return null;
  const gapsMs = pieces.slice(1).map(({ atMs }, place) => atMs - (pieces[place]?.atMs ?? 0));
  const seconds = (last.atMs - first.atMs) / 1_000;
  return {
    firstMs: first.atMs,
    lastMs: last.atMs,
    gapsMs,
    medianGapMs: median(gapsMs),
    piecesPerSecond: seconds > 0 ? gapsMs.length / seconds : 0,
  };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? 0;
  return sorted.length % 2 ? upper : (upper + (sorted[middle - 1] ?? upper)) / 2;
}
