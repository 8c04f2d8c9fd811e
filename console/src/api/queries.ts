// The cache of what the server answered, and when it asks again.
import { QueryClient } from "@tanstack/react-query";
import { ApiError } from "./error";
import { currentKey, subscribeKey } from "./key";

const MAX_RETRIES = 2;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // A browser without a network still reaches a server on its own machine.
      networkMode: "always",
      staleTime: 5_000,
      retry: (failures, error) => failures < MAX_RETRIES && isPassing(error),
      retryDelay: (failures, error) =>
        error instanceof ApiError && error.retryAfterSeconds !== null
          ? Math.min(error.retryAfterSeconds, 10) * 1_000
          : 500 * 2 ** failures,
    },
    mutations: { retry: false },
  },
});

let lastKey = currentKey().key;

// Another key sees other things, so that nothing of the key before stays.
subscribeKey(() => {
  const { key } = currentKey();
  if (key === lastKey) return;
  lastKey = key;
  void queryClient.resetQueries();
});

/** Whether the same request may succeed soon: 429, 503, or no answer. */
function isPassing(error: Error): boolean {
  return error instanceof ApiError && [0, 429, 503].includes(error.status);
}
