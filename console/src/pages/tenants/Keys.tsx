import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { keyPages } from "@/api/tenants";
import { useCommands } from "@/app/commands";
import { Button } from "@/widgets/button/Button";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import styles from "./Keys.module.css";
import { KeyTable } from "./KeyTable";
import { NewKeyDialog } from "./NewKeyDialog";
import { RevokeDialog } from "./RevokeDialog";

/** The keys of a tenant. */
export function Keys({ tenant }: { tenant: string }) {
  const { data, error, refetch, fetchNextPage, hasNextPage, isFetching } = useInfiniteQuery(keyPages(tenant));
  const [isCreating, setCreating] = useState(false);
  const [revoked, setRevoked] = useState<string | null>(null);
  const keys = useMemo(() => data?.pages.flatMap((page) => page.keys) ?? [], [data]);
  useCommands(
    useMemo(
      () => [{ id: "keys.new", title: `New key of ${tenant}`, group: "Tenants & keys", run: () => setCreating(true) }],
      [tenant],
    ),
  );
  return (
    <>
      <div className={styles.head}>
        <h2>Keys</h2>
        <Button onClick={() => setCreating(true)}>New key</Button>
      </div>
      {error ? (
        <ErrorState error={error} onRetry={() => void refetch()} />
      ) : !data ? (
        <Loading label="Reading the keys" />
      ) : keys.length === 0 ? (
        <p className={styles.none}>{tenant} has no keys. Make one, and hand it to whoever calls the server.</p>
      ) : (
        <KeyTable
          keys={keys}
          onRevoke={setRevoked}
          onEnd={() => {
            if (hasNextPage && !isFetching) void fetchNextPage();
          }}
        />
      )}
      {isCreating && <NewKeyDialog tenant={tenant} onClose={() => setCreating(false)} />}
      {revoked && <RevokeDialog prefix={revoked} tenant={tenant} onClose={() => setRevoked(null)} />}
    </>
  );
}
