import { useQuery } from "@tanstack/react-query";
import { useParams, useSearchParams } from "wouter";
import { adapterQuery, versionSearch } from "@/api/adapters";
import type { Schema } from "@/api/server";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import { AdapterHeading } from "./AdapterHeading";
import { AliasCard } from "./aliases/AliasCard";
import { GoldenCard } from "./golden/GoldenCard";
import { HistoryCard } from "./history/HistoryCard";
import styles from "./index.module.css";
import { ManifestCard } from "./manifest/ManifestCard";
import { PartsCard } from "./manifest/PartsCard";
import { ReportCard } from "./report/ReportCard";
import { RolloutCard } from "./rollouts/RolloutCard";
import { VersionsCard } from "./versions/VersionsCard";

const MAX_VERSIONS = 200;

export default function AdapterPage() {
  const { name = "" } = useParams();
  const adapter = useQuery(adapterQuery(name));
  if (adapter.isPending) return <Loading label="Loading the adapter" />;
  if (adapter.isError) return <ErrorState error={adapter.error} onRetry={() => void adapter.refetch()} />;
  return <Detail key={name} adapter={adapter.data} />;
}

function Detail({ adapter }: { adapter: Schema<"Adapter"> }) {
  const [parameters, setParameters] = useSearchParams();
  const versions = useQuery(versionSearch(adapter.name, MAX_VERSIONS)).data?.versions ?? [];
  const asked = Number(parameters.get("version"));
  const shown = versions.some(({ version }) => version === asked) ? asked : adapter.latest.version;
  const show = (version: number) => setParameters({ version: String(version) }, { replace: true });
  return (
    <>
      <AdapterHeading adapter={adapter} versions={versions} shown={shown} />
      <div className={styles.cards}>
        <VersionsCard adapter={adapter} versions={versions} shown={shown} onShow={show} />
        <AliasCard name={adapter.name} versions={versions} />
        <RolloutCard adapter={adapter} versions={versions} />
        <PartsCard name={adapter.name} version={shown} />
        <GoldenCard name={adapter.name} version={shown} />
        <HistoryCard adapter={adapter} />
        <ReportCard name={adapter.name} version={shown} />
        <ManifestCard name={adapter.name} version={shown} />
      </div>
    </>
  );
}
