import { useQuery } from "@tanstack/react-query";
import { answer, api } from "@/api/server";
import { addFailure, addSnapshot, currentHistory } from "./history";
import { snapshotOf } from "./snapshot";

export const POLL_MS = 2_000;
const MAX_PAUSE_MS = 30_000;

/** Reads the metrics every two seconds while the tab is in view, and less often while the server does not answer. */
export function usePolling() {
  return useQuery({
    queryKey: ["live"],
    queryFn: ({ signal }) => poll(signal),
    staleTime: 0,
    retry: false,
    refetchInterval: () => Math.min(MAX_PAUSE_MS, POLL_MS * 2 ** currentHistory().failures),
    // Paused while the tab is hidden.
    refetchIntervalInBackground: false,
  });
}

async function poll(signal: AbortSignal): Promise<true> {
  try {
    // Balancers send a session to one replica, so that differences of snapshots are of that one.
    const headers = { "x-session-id": "peltier/metrics" };
    const text = await answer<unknown>(api.GET("/metrics", { signal, headers, parseAs: "text" }));
    addSnapshot(snapshotOf(String(text), Date.now()));
  } catch (failure) {
    if (!signal.aborted) addFailure();
    throw failure;
  }
  return true;
}
