import { useMemo, useState } from "react";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import { BusyTable } from "./BusyTable";
import { Charts } from "./Charts";
import { useHistory } from "./history";
import styles from "./Live.module.css";
import { PollState } from "./PollState";
import { RangeChoice } from "./RangeChoice";
import { ServerTiles } from "./ServerTiles";
import { Tiers } from "./Tiers";
import { usePolling } from "./usePolling";

/** What the server does now, and did in the last hour while this tab looked. */
export default function LivePage() {
  const { error, refetch } = usePolling();
  const history = useHistory();
  const [minutes, setMinutes] = useState(5);
  const { points, latest } = history;
  const shown = useMemo(() => {
    const from = (points.at(-1)?.at ?? 0) - minutes * 60_000;
    return points.filter(({ at }) => at >= from);
  }, [points, minutes]);
  return (
    <>
      <PageHeading title="Live" about={latest && <PollState history={history} error={error} />}>
        {latest && <RangeChoice minutes={minutes} onChange={setMinutes} />}
      </PageHeading>
      {latest ? (
        <div className={styles.page}>
          <ServerTiles snapshot={latest} point={points.at(-1)} isLost={history.failures > 0} />
          <div className={styles.figures}>
            <Charts points={shown} />
            <Tiers snapshot={latest} />
            <BusyTable point={points.at(-1)} />
          </div>
        </div>
      ) : error ? (
        <ErrorState error={error} onRetry={() => void refetch()} />
      ) : (
        <Loading label="Asking the server" />
      )}
    </>
  );
}
