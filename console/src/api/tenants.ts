// Queries of tenants and of their keys.
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { answer, api } from "./server";

const PAGE = 200;
const USAGE_MS = 5_000;

/** Every tenant in order of name, page by page. */
export function tenantPages() {
  return infiniteQueryOptions({
    queryKey: ["tenants", "list"],
    queryFn: ({ pageParam, signal }) =>
      answer(api.GET("/v1/tenants", { params: { query: { cursor: pageParam, limit: PAGE } }, signal })),
    initialPageParam: "",
    getNextPageParam: ({ next_cursor }) => next_cursor,
  });
}

/** One tenant with its quotas. */
export function tenantInfo(tenant: string) {
  return queryOptions({
    queryKey: ["tenants", "one", tenant],
    queryFn: ({ signal }) => answer(api.GET("/v1/tenants/{tenant}", { params: { path: { tenant } }, signal })),
  });
}

/** What a tenant uses of its quotas, asked again every few seconds. */
export function tenantUsage(tenant: string) {
  return queryOptions({
    queryKey: ["tenants", "usage", tenant],
    queryFn: ({ signal }) => answer(api.GET("/v1/tenants/{tenant}/usage", { params: { path: { tenant } }, signal })),
    refetchInterval: USAGE_MS,
  });
}

/** The keys of a tenant, oldest first, page by page. */
export function keyPages(tenant: string) {
  return infiniteQueryOptions({
    queryKey: ["keys", tenant],
    queryFn: ({ pageParam, signal }) =>
      answer(api.GET("/v1/keys", { params: { query: { tenant, cursor: pageParam, limit: PAGE } }, signal })),
    initialPageParam: "",
    getNextPageParam: ({ next_cursor }) => next_cursor,
  });
}
