// The address after `#`: a path and a query, both of which a link can name and a reload keeps.
import { useSyncExternalStore } from "react";

interface NavigateOptions {
  replace?: boolean;
}

/** Wouter's hook for the path. */
export function useHashLocation(): [string, typeof navigate] {
  return [useSyncExternalStore(subscribe, currentPath), navigate];
}
useHashLocation.hrefs = (path: string) => `#${path}`;
useHashLocation.searchHook = () => useSyncExternalStore(subscribe, currentQuery);

export function navigate(target: string, { replace = false }: NavigateOptions = {}): void {
  if (`#${target}` === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", `#${target}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function subscribe(listener: () => void): () => void {
  addEventListener("hashchange", listener);
  addEventListener("popstate", listener);
  return () => {
    removeEventListener("hashchange", listener);
    removeEventListener("popstate", listener);
  };
}

function parts(): string[] {
  return location.hash.replace(/^#/, "").split("?", 2);
}

function currentPath(): string {
  return parts()[0] || "/";
}

function currentQuery(): string {
  return parts()[1] ?? "";
}
