import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { tenantPages } from "@/api/tenants";
import { useCommands } from "@/app/commands";
import { Button } from "@/widgets/button/Button";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import { NewTenantDialog } from "./NewTenantDialog";
import { TenantDetail } from "./TenantDetail";
import { TenantList } from "./TenantList";
import styles from "./Tenants.module.css";

/** Tenants, their quotas and keys; for operators. */
export default function TenantsPage() {
  const [query, setQuery] = useSearchParams();
  const [isCreating, setCreating] = useState(false);
  const { data, error, refetch, fetchNextPage, hasNextPage, isFetching } = useInfiniteQuery(tenantPages());
  const tenants = useMemo(() => data?.pages.flatMap((page) => page.tenants) ?? [], [data]);
  const selected = query.get("tenant") ?? tenants[0]?.name;
  const select = (tenant: string) => setQuery({ tenant });
  useCommands(
    useMemo(
      () => [{ id: "tenants.new", title: "New tenant", group: "Tenants & keys", run: () => setCreating(true) }],
      [],
    ),
  );
  return (
    <>
      <PageHeading title="Tenants & keys" about="Who may use this server, and how much of it.">
        <Button kind="primary" onClick={() => setCreating(true)}>
          New tenant
        </Button>
      </PageHeading>
      {error ? (
        <ErrorState error={error} onRetry={() => void refetch()} />
      ) : !data ? (
        <Loading label="Reading the tenants" />
      ) : (
        <div className={styles.page}>
          <TenantList
            tenants={tenants}
            selected={selected}
            onEnd={() => {
              if (hasNextPage && !isFetching) void fetchNextPage();
            }}
          />
          {selected && <TenantDetail key={selected} name={selected} />}
        </div>
      )}
      {isCreating && <NewTenantDialog onClose={() => setCreating(false)} onCreated={select} />}
    </>
  );
}
