import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "@/api/server";

const PAGE = 1_000;
const MAX_PAGES = 3;
const MAX_CHANGES = 100;

/** The newest changes of an adapter among the newest records of its tenant; the log has no index of adapters. */
export function adapterAudit(tenant: string, name: string) {
  return queryOptions({
    queryKey: ["adapters", "audit", tenant, name],
    queryFn: ({ signal }) => read(tenant, name, signal),
    retry: false,
  });
}

async function read(tenant: string, name: string, signal: AbortSignal): Promise<Schema<"AuditRecord">[]> {
  const found: Schema<"AuditRecord">[] = [];
  let cursor: string | null | undefined = "";
  for (let page = 0; page < MAX_PAGES && cursor != null && found.length < MAX_CHANGES; page += 1) {
    const query = { tenant, limit: PAGE, cursor };
    const answered: Schema<"AuditPage"> = await answer(api.GET("/v1/audit", { params: { query }, signal }));
    found.push(...answered.records.filter(({ subject }) => subject === name || subject.startsWith(`${name}@`)));
    cursor = answered.next_cursor;
  }
  return found.slice(0, MAX_CHANGES);
}
