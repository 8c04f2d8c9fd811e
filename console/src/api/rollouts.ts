// Guarded changes of aliases.
import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./server";

const INTERVAL_MS = 5_000;

export type Rollout = Schema<"Rollout">;
export type Guard = { shadow: true } | { share: number };

/** The newest guarded change of an alias, null if it had none; asked again while it is in progress. */
export function rolloutQuery(name: string, alias: string) {
  return queryOptions({
    queryKey: ["adapters", "rollout", name, alias],
    queryFn: async ({ signal }) => {
      const path = { name, alias };
      const found = await answer(api.GET("/v1/adapters/{name}/aliases/{alias}", { params: { path }, signal }));
      return found.rollout ?? null;
    },
    refetchInterval: ({ state }) => (state.data?.state === "running" ? INTERVAL_MS : false),
  });
}

export const startRollout = (name: string, alias: string, candidate: number, guard: Guard) =>
  answer(
    api.PUT("/v1/adapters/{name}/aliases/{alias}", {
      params: { path: { name, alias } },
      body: { candidate, guard: { shadow: false, ...guard } as Schema<"RolloutGuard"> },
    }),
  );

export const stopRollout = (name: string, alias: string) =>
  answer(api.POST("/v1/adapters/{name}/aliases/{alias}/stop", { params: { path: { name, alias } } }));
