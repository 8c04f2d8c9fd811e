// What adapters answered, and where they are in the server's memory.
import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./server";

const INTERVAL_MS = 5_000;

export type Tier = Schema<"VersionActivity">["tier"];

/** Asked again while a page shows it. */
export const activityQuery = queryOptions({
  queryKey: ["activity"],
  queryFn: async ({ signal }) => indexed(await answer(api.GET("/v1/activity", { signal }))),
  refetchInterval: INTERVAL_MS,
});

export interface Activity {
  /** By the name of the adapter, the most asked version first. */
  byName: ReadonlyMap<string, readonly Schema<"VersionActivity">[]>;
  /** The tier of an artifact; null if the server's answer left it out. */
  tierOf: (digest: string) => Tier | null;
}

function indexed({ versions = [], residents = [], num_residents = 0 }: Schema<"ActivityResponse">): Activity {
  const byName = new Map<string, Schema<"VersionActivity">[]>();
  for (const version of versions) {
    byName.set(version.name, [...(byName.get(version.name) ?? []), version]);
  }
  const tiers = new Map(residents.map(({ digest, tier }) => [digest, tier]));
  const elsewhere = num_residents > residents.length ? null : "store";
  return { byName, tierOf: (digest) => tiers.get(digest) ?? elsewhere };
}
