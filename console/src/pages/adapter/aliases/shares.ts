// The shares of a split as whole points, a thousand in all, so that moving one never loses a part of another.
import type { Split } from "@/api/adapters";

export const ALL_POINTS = 1_000;
/** Of one press of an arrow key: one percent. */
export const STEP_POINTS = 10;
const ADDED_POINTS = 100;

export interface Share {
  version: number;
  points: number;
}

/** By version. The largest share takes what rounding left over. */
export function sharesOf(split: Split): Share[] {
  const shares = Object.entries(split)
    .map(([version, share]) => ({ version: Number(version), points: Math.round(share * ALL_POINTS) }))
    .sort((one, other) => one.version - other.version);
  const rest = ALL_POINTS - shares.reduce((sum, { points }) => sum + points, 0);
  const largest = [...shares].sort((one, other) => other.points - one.points)[0];
  return shares.map((share) => (share === largest ? { ...share, points: share.points + rest } : share));
}

/** Without the versions that get nothing. */
export function splitOf(shares: readonly Share[]): Split {
  return Object.fromEntries(
    shares.filter(({ points }) => points > 0).map(({ version, points }) => [version, points / ALL_POINTS]),
  );
}

/** Where the share at `index` ends, in points from the beginning of the bar. */
export function endOf(shares: readonly Share[], index: number): number {
  return shares.slice(0, index + 1).reduce((sum, { points }) => sum + points, 0);
}

/** Moves the border between the shares at `index` and `index + 1`, as far as these two allow. */
export function moveBorder(shares: readonly Share[], index: number, to: number): Share[] {
  const begin = endOf(shares, index - 1);
  const end = endOf(shares, index + 1);
  const border = Math.min(Math.max(Math.round(to), begin), end);
  return shares.map((share, place) => {
    if (place === index) return { ...share, points: border - begin };
    return place === index + 1 ? { ...share, points: end - border } : share;
  });
}

/** Gives a version a tenth of the requests, taken from the largest share. */
export function addVersion(shares: readonly Share[], version: number): Share[] {
  const largest = [...shares].sort((one, other) => other.points - one.points)[0];
  const taken = Math.min(ADDED_POINTS, largest?.points ?? 0);
  return [
    ...shares.map((share) => (share === largest ? { ...share, points: share.points - taken } : share)),
    { version, points: taken },
  ].sort((one, other) => one.version - other.version);
}

export function areEqual(one: readonly Share[], other: readonly Share[]): boolean {
  return JSON.stringify(splitOf(one)) === JSON.stringify(splitOf(other));
}
