import { useQuery } from "@tanstack/react-query";
import { answer, api } from "@/api/server";
import { addFailure, addSnapshot, currentHistory } from "./history";

export const POLL_MS = 2_000;
const MAX_PAUSE_MS = 30_000;

/** Asks for a snapshot every two seconds while the tab is in view, and less often while the server does not answer. */
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
    addSnapshot(await answer(api.GET("/v1/live", { signal, headers: { "x-session-id": "peltier/live" } })));
  } catch (failure) {
    if (!signal.aborted) addFailure();
    throw failure;
  }
  return true;
}
