import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo } from "react";
import { Link, useSearchParams } from "wouter";
import { adapterPages } from "@/api/adapters";
import { serverInfo } from "@/api/info";
import { navigate } from "@/app/hash";
import { Button } from "@/widgets/button/Button";
import { whole } from "@/widgets/format/numbers";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { EmptyState } from "@/widgets/states/EmptyState";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import { DataTable } from "@/widgets/table/DataTable";
import { adapterColumns } from "./columns";
import styles from "./index.module.css";

const MAX_SEARCH_CHARS = 64;

export default function AdaptersPage() {
  const [parameters, setParameters] = useSearchParams();
  const typed = parameters.get("q") ?? "";
  const text = useDeferredValue(typed.trim());
  const pages = useInfiniteQuery(adapterPages(text));
  const total = useQuery(serverInfo()).data?.num_adapters;
  const rows = useMemo(() => pages.data?.pages.flatMap((page) => page.adapters) ?? [], [pages.data]);
  const columns = useMemo(() => adapterColumns(!pages.hasNextPage), [pages.hasNextPage]);
  const search = (value: string) => setParameters(value ? { q: value } : {}, { replace: true });

  return (
    <div className={styles.page}>
      <PageHeading title="Adapters" about={total === undefined ? undefined : `${whole(total)} of this tenant`}>
        <input
          type="search"
          className={styles.search}
          aria-label="Search by name"
          placeholder="Search by name"
          maxLength={MAX_SEARCH_CHARS}
          spellCheck={false}
          value={typed}
          onChange={(event) => search(event.target.value)}
        />
        <Button kind="primary" onClick={() => navigate("/upload")}>
          Upload
        </Button>
      </PageHeading>
      {pages.isPending && <Loading label="Loading adapters" />}
      {pages.isError && rows.length === 0 && <ErrorState error={pages.error} onRetry={() => void pages.refetch()} />}
      {pages.isSuccess && (
        <DataTable
          label="Adapters"
          columns={columns}
          rows={rows}
          rowKey={(row) => row.name}
          total={text === "" ? total : undefined}
          onEnd={() => {
            if (pages.hasNextPage && !pages.isFetchingNextPage) void pages.fetchNextPage();
          }}
          empty={text === "" ? <NoAdapters /> : <NothingFound text={text} onClear={() => search("")} />}
        />
      )}
    </div>
  );
}

function NoAdapters() {
  return (
    <EmptyState title="No adapters yet">
      <p>
        Train one with <code>peltier train</code>, then <Link href="/upload">upload its artifact</Link>.
      </p>
    </EmptyState>
  );
}

function NothingFound({ text, onClear }: { text: string; onClear: () => void }) {
  return (
    <EmptyState title="No adapter has this in its name" actions={<Button onClick={onClear}>Show all</Button>}>
      <p>
        Nothing of this tenant contains <code>{text}</code>. Names are in lower case.
      </p>
    </EmptyState>
  );
}
