// Queries of the audit log.
import { infiniteQueryOptions, keepPreviousData } from "@tanstack/react-query";
import { answer, api } from "./server";

const PAGE = 200;

/** Which records are wanted; what is left out is not asked for. Times are in ISO 8601 with a zone. */
export interface AuditFilter {
  tenant?: string;
  actor?: string;
  action?: string;
  since?: string;
  until?: string;
}

/** The wanted records, newest first, page by page. */
export function auditPages(filter: AuditFilter) {
  return infiniteQueryOptions({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam, signal }) =>
      answer(api.GET("/v1/audit", { params: { query: { ...filter, cursor: pageParam, limit: PAGE } }, signal })),
    initialPageParam: "",
    getNextPageParam: ({ next_cursor }) => next_cursor,
    placeholderData: keepPreviousData,
  });
}
