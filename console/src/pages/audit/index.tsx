import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useSearchParams } from "wouter";
import { auditPages } from "@/api/audit";
import { Button } from "@/widgets/button/Button";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { EmptyState } from "@/widgets/states/EmptyState";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import styles from "./Audit.module.css";
import { Filters } from "./Filters";
import { filterOf } from "./filter";
import { Records } from "./Records";

/** Who changed what. */
export default function AuditPage() {
  const [query, setQuery] = useSearchParams();
  const filter = useMemo(() => filterOf(query), [query]);
  const { data, error, refetch, fetchNextPage, hasNextPage, isFetching } = useInfiniteQuery(auditPages(filter));
  const records = useMemo(() => data?.pages.flatMap((page) => page.records) ?? [], [data]);
  const more = () => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  };
  return (
    <div className={styles.page}>
      <PageHeading title="Audit" about="Every change of adapters, aliases, tenants and keys, newest first.">
        <Button onClick={() => void refetch()} disabled={isFetching}>
          Refresh
        </Button>
      </PageHeading>
      <Filters query={query} onChange={(next) => setQuery(next, { replace: true })} />
      {error ? (
        <ErrorState error={error} onRetry={() => void refetch()} />
      ) : !data ? (
        <Loading label="Reading the audit log" />
      ) : records.length === 0 ? (
        <EmptyState title="No such record">
          {Object.keys(filter).length > 0
            ? "Nothing in the log fits the filters. Clear one of them."
            : "Nothing has been changed on this server yet."}
        </EmptyState>
      ) : (
        <Records records={records} onEnd={more} />
      )}
    </div>
  );
}
