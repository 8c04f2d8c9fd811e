import { useQueries, useQuery } from "@tanstack/react-query";
import { aliasHistoryQuery } from "@/api/adapters";
import { ApiError } from "@/api/error";
import type { Schema } from "@/api/server";
import { Card } from "@/widgets/card/Card";
import { EmptyState } from "@/widgets/states/EmptyState";
import { Loading } from "@/widgets/states/Loading";
import { Time } from "@/widgets/time/Time";
import { changesOfAlias, changesOfAudit } from "./changes";
import styles from "./history.module.css";
import { adapterAudit } from "./query";

/** What happened to an adapter: its audit log where the key may read it, otherwise what its aliases have meant. */
export function HistoryCard({ adapter }: { adapter: Schema<"Adapter"> }) {
  const { tenant, name } = adapter;
  const audit = useQuery(adapterAudit(tenant, name));
  const mayNot = audit.error instanceof ApiError && [401, 403].includes(audit.error.status);
  const aliases = Object.keys(adapter.aliases ?? {});
  const histories = useQueries({
    queries: aliases.map((alias) => ({ ...aliasHistoryQuery(name, alias), enabled: mayNot })),
  });
  const changes = audit.data
    ? changesOfAudit(audit.data)
    : histories.flatMap(({ data }, index) => changesOfAlias(aliases[index] ?? "", data?.changes ?? []));
  return (
    <Card title="History">
      {audit.isPending && <Loading label="Loading the history" />}
      {mayNot && <p className={styles.note}>Of aliases only: the audit log needs a key with the scope admin.</p>}
      {!audit.isPending && changes.length === 0 && (
        <EmptyState title="Nothing is recorded here">Changes of this adapter will be listed.</EmptyState>
      )}
      <ol className={styles.changes}>
        {changes.map((change) => (
          <li key={change.id}>
            <Time value={change.at} isRelative />
            <span>
              <strong>{change.what}</strong> {change.detail}
            </span>
            <span className={styles.actor}>{change.actor}</span>
          </li>
        ))}
      </ol>
    </Card>
  );
}
