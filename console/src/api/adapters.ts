// Adapters, their versions and aliases.
import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api, fetchWithKey, ROOT } from "./server";

const PAGE_ROWS = 500;

/** The first `limit` adapters whose name contains `text`. */
export function adapterSearch(text: string, limit: number) {
  return queryOptions({
    queryKey: ["adapters", "search", text, limit],
    queryFn: ({ signal }) => answer(api.GET("/v1/adapters", { params: { query: { q: text, limit } }, signal })),
    placeholderData: keepPreviousData,
  });
}

/** The newest versions of an adapter. */
export function versionSearch(name: string, limit: number) {
  return queryOptions({
    queryKey: ["adapters", "versions", name, limit],
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/adapters/{name}/versions", { params: { path: { name }, query: { limit } }, signal })),
    retry: false,
  });
}

/** Every adapter whose name contains `text`, a page at a time. */
export function adapterPages(text: string) {
  return infiniteQueryOptions({
    queryKey: ["adapters", "pages", text],
    queryFn: ({ signal, pageParam: cursor }) =>
      answer(api.GET("/v1/adapters", { params: { query: { q: text, limit: PAGE_ROWS, cursor } }, signal })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
    staleTime: 30_000,
  });
}

export function adapterQuery(name: string) {
  return queryOptions({
    queryKey: ["adapters", "one", name],
    queryFn: ({ signal }) => answer(api.GET("/v1/adapters/{name}", { params: { path: { name } }, signal })),
  });
}

export function manifestQuery(name: string, version: number) {
  return queryOptions({
    queryKey: ["manifest", name, version],
    queryFn: ({ signal }) =>
      answer(
        api.GET("/v1/adapters/{name}/versions/{version}/manifest", { params: { path: { name, version } }, signal }),
      ),
    // A version never changes.
    staleTime: 600_000,
  });
}

/** The report of the training of a version; null if none was uploaded with it. */
export function reportQuery(name: string, version: number) {
  return queryOptions({
    queryKey: ["adapters", "report", name, version],
    queryFn: async ({ signal }) => {
      const path = { name, version };
      return (await answer(api.GET("/v1/adapters/{name}/versions/{version}/report", { params: { path }, signal })))
        .report;
    },
    staleTime: 60_000,
  });
}

export function aliasesQuery(name: string) {
  return queryOptions({
    queryKey: ["adapters", "aliases", name],
    queryFn: ({ signal }) => answer(api.GET("/v1/adapters/{name}/aliases", { params: { path: { name } }, signal })),
  });
}

export function aliasHistoryQuery(name: string, alias: string) {
  return queryOptions({
    queryKey: ["adapters", "history", name, alias],
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/adapters/{name}/aliases/{alias}/history", { params: { path: { name, alias } }, signal })),
  });
}

/** Shares of requests by version; they sum to 1. */
export type Split = Record<string, number>;

export const setAlias = (name: string, alias: string, versions: Split) =>
  answer(api.PUT("/v1/adapters/{name}/aliases/{alias}", { params: { path: { name, alias } }, body: { versions } }));

export const rollBackAlias = (name: string, alias: string) =>
  answer(api.POST("/v1/adapters/{name}/aliases/{alias}/rollback", { params: { path: { name, alias } } }));

export const deleteAlias = (name: string, alias: string) =>
  answer(api.DELETE("/v1/adapters/{name}/aliases/{alias}", { params: { path: { name, alias } } }));

export const deprecateVersion = (name: string, version: number, reason: string | null) =>
  answer(
    api.POST("/v1/adapters/{name}/versions/{version}/deprecate", {
      params: { path: { name, version } },
      body: { reason },
    }),
  );

export const deleteVersion = (name: string, version: number) =>
  answer(api.DELETE("/v1/adapters/{name}/versions/{version}", { params: { path: { name, version } } }));

export const undeleteVersion = (name: string, version: number) =>
  answer(api.POST("/v1/adapters/{name}/versions/{version}/undelete", { params: { path: { name, version } } }));

export const deleteAdapter = (name: string) =>
  answer(api.DELETE("/v1/adapters/{name}", { params: { path: { name } } }));

/** Has the browser save the artifact of a version. */
export async function downloadArtifact(name: string, version: number): Promise<void> {
  const response = await fetchWithKey(new Request(`${ROOT}/v1/adapters/${name}/versions/${version}/artifact`));
  const address = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = `${name}-${version}.safetensors`;
  link.click();
  URL.revokeObjectURL(address);
}
