// The visitor's key. It stays in this tab: the browser forgets it when the tab is closed.
import { useSyncExternalStore } from "react";

const NAME = "peltier.key";

export interface KeyState {
  key: string;
  /** Why the server refused the key, or the request without one; empty until it did. */
  refusal: string;
}

let state: KeyState = { key: sessionStorage.getItem(NAME) ?? "", refusal: "" };
const listeners = new Set<() => void>();

export function currentKey(): KeyState {
  return state;
}

export function setKey(key: string): void {
  if (key) sessionStorage.setItem(NAME, key);
  else sessionStorage.removeItem(NAME);
  change({ key, refusal: "" });
}

/** Notes that the server refused `key`. A key that has been replaced meanwhile does not count. */
export function refuseKey(key: string, refusal: string): void {
  if (key === state.key && refusal !== state.refusal) change({ key, refusal });
}

export function useKey(): KeyState {
  return useSyncExternalStore(subscribeKey, currentKey);
}

export function subscribeKey(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function change(next: KeyState): void {
  state = next;
  for (const listener of listeners) listener();
}
