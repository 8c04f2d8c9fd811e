import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { rollBackAlias, setAlias } from "@/api/adapters";
import { type Rollout, rolloutQuery, stopRollout } from "@/api/rollouts";
import type { Schema } from "@/api/server";
import { Badge } from "@/widgets/badge/Badge";
import { Button } from "@/widgets/button/Button";
import { percent } from "@/widgets/format/numbers";
import { useNotice } from "@/widgets/notice/notices";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Time } from "@/widgets/time/Time";
import { adapterAudit } from "../history/query";
import { ArmsTable } from "./ArmsTable";
import { EvidenceTable } from "./EvidenceTable";
import styles from "./rollouts.module.css";

const STATES = {
  running: ["in progress", "accent"],
  promoted: ["promoted", "good"],
  rolled_back: ["rolled back", "bad"],
  stopped: ["stopped", "neutral"],
} as const;

interface Props {
  adapter: Schema<"Adapter">;
  alias: string;
}

/** The newest rollout of an alias; nothing if it had none. */
export function RolloutPanel({ adapter, alias }: Props) {
  const found = useQuery(rolloutQuery(adapter.name, alias));
  if (found.isError) return <ErrorState error={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return null;
  const rollout = found.data;
  const [word, tone] = STATES[rollout.state];
  return (
    <section className={styles.rollout} aria-label={`Rollout of ${alias}`}>
      <div className={styles.head}>
        <h3>{alias}</h3>
        <Badge tone={tone}>{word}</Badge>
        <span>
          v{rollout.candidate} {rollout.share === null ? "shadows" : `gets ${percent(rollout.share)} beside`} v
          {rollout.incumbent}
        </span>
        <span className={styles.since}>
          since <Time value={rollout.started_at} isRelative /> by {rollout.started_by || "nobody"}
        </span>
      </div>
      {rollout.state !== "running" && <Decision adapter={adapter} rollout={rollout} />}
      <EvidenceTable rollout={rollout} />
      <ArmsTable rollout={rollout} />
      <Actions name={adapter.name} rollout={rollout} />
    </section>
  );
}

/** Why it ended, and the entry of the audit log, where the key may read it. */
function Decision({ adapter, rollout }: { adapter: Schema<"Adapter">; rollout: Rollout }) {
  const audit = useQuery(adapterAudit(adapter.tenant, adapter.name)).data ?? [];
  const entry = audit.find(({ action, detail }) => detail.rollout === rollout.id && action !== "start_rollout");
  return (
    <p className={styles.reason}>
      {rollout.reason}
      {entry && (
        <span className={styles.since}>
          {" "}
          Audit entry {entry.id} by {entry.actor}, <Time value={entry.at} />.
        </span>
      )}
    </p>
  );
}

function Actions({ name, rollout }: { name: string; rollout: Rollout }) {
  const { alias, candidate, incumbent } = rollout;
  const cache = useQueryClient();
  const notice = useNotice();
  const change = useMutation({
    mutationFn: ({ work }: { work: () => Promise<unknown>; said: string }) => work(),
    onSuccess: async (_, { said }) => {
      notice({ text: said });
      await cache.invalidateQueries({ queryKey: ["adapters"] });
    },
    onError: (error) => notice({ text: error.message, tone: "bad" }),
  });
  const promote = { work: () => setAlias(name, alias, { [candidate]: 1 }), said: `${alias} means v${candidate}.` };
  const stop = { work: () => stopRollout(name, alias), said: `${alias} means v${incumbent} alone.` };
  const back = { work: () => rollBackAlias(name, alias), said: `${alias} is rolled back.` };
  if (rollout.state === "running") {
    return (
      <div className={styles.actions}>
        <Button onClick={() => change.mutate(promote)} disabled={change.isPending}>
          Promote v{candidate} now
        </Button>
        <Button kind="danger" onClick={() => change.mutate(stop)} disabled={change.isPending}>
          Stop and keep v{incumbent}
        </Button>
      </div>
    );
  }
  if (rollout.state !== "promoted") return null;
  return (
    <div className={styles.actions}>
      <Button onClick={() => change.mutate(back)} disabled={change.isPending}>
        Roll {alias} back
      </Button>
    </div>
  );
}
