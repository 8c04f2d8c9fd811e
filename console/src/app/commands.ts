// What the command palette offers: commands of the whole console and of the page that is shown.
import { useEffect, useSyncExternalStore } from "react";

export interface Command {
  /** Unique among the commands that are registered at the same time. */
  id: string;
  title: string;
  /** Where the command belongs, for example the name of a page. */
  group: string;
  run: () => void;
}

const registered = new Map<symbol, readonly Command[]>();
const listeners = new Set<() => void>();
let all: readonly Command[] = [];

/** Offers `commands` while the calling component is shown. Keep the array stable with `useMemo`. */
export function useCommands(commands: readonly Command[]): void {
  useEffect(() => {
    const owner = Symbol();
    registered.set(owner, commands);
    publish();
    return () => {
      registered.delete(owner);
      publish();
    };
  }, [commands]);
}

export function useRegisteredCommands(): readonly Command[] {
  return useSyncExternalStore(subscribe, () => all);
}

function publish(): void {
  all = [...registered.values()].flat();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
