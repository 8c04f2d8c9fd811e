// The last hour of the server, as this tab has seen it. It outlives the page, and ends with the tab.
import { useSyncExternalStore } from "react";
import { subscribeKey } from "@/api/key";
import { type Point, pointBetween } from "./point";
import type { Snapshot } from "./snapshot";

const KEPT_MS = 3_600_000;

export interface History {
  points: readonly Point[];
  /** The newest snapshot; null before the first. */
  latest: Snapshot | null;
  /** How many polls in a row have failed. */
  failures: number;
}

const NOTHING: History = { points: [], latest: null, failures: 0 };

let history = NOTHING;
const listeners = new Set<() => void>();

export function addSnapshot(latest: Snapshot): void {
  const point = history.latest && pointBetween(history.latest, latest);
  const from = latest.at - KEPT_MS;
  change({
    points: point ? [...history.points.filter(({ at }) => at >= from), point] : history.points,
    latest,
    failures: 0,
  });
}

export function addFailure(): void {
  change({ ...history, failures: history.failures + 1 });
}

export function currentHistory(): History {
  return history;
}

export function useHistory(): History {
  return useSyncExternalStore(subscribe, currentHistory);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function change(next: History): void {
  history = next;
  for (const listener of listeners) listener();
}

// Another key may belong to nobody who may see this.
subscribeKey(() => {
  if (history.latest !== null) change(NOTHING);
});
