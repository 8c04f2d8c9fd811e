import { Link } from "wouter";
import type { Answered } from "@/api/predictions";
import { Badge } from "@/widgets/badge/Badge";
import { Digest } from "@/widgets/digest/Digest";
import { counted } from "@/widgets/format/numbers";
import { TierBadge } from "@/widgets/tier/TierBadge";
import { TimingBar } from "./TimingBar";
import styles from "./WhoAnswered.module.css";

interface Props {
  answered: Answered;
  /** From the request to the answer, as this page measured it. */
  roundTripMs?: number;
}

/** The version that answered, where it was found, the server's time, and the batch. */
export function WhoAnswered({ answered, roundTripMs }: Props) {
  const { adapter, tier, usage, timings_ms, batch } = answered;
  return (
    <div className={styles.who}>
      <p className={styles.line}>
        <Link href={`/adapters/${adapter.name}`}>
          {adapter.tenant}:{adapter.name}@{adapter.version}
        </Link>
        <Badge>{adapter.preset}</Badge>
        <TierBadge tier={tier ?? null} />
        <Digest value={adapter.digest} />
      </p>
      <TimingBar timings={timings_ms} />
      <p className={styles.facts}>
        <span>
          batch of {counted(batch.rows, "row")}, {counted(batch.adapters, "adapter")}
        </span>
        <span>{counted(usage.tokens, "token")}</span>
        {usage.completion_tokens != null && <span>{usage.completion_tokens} generated</span>}
        {usage.truncated_inputs > 0 && <Badge tone="warn">{usage.truncated_inputs} truncated</Badge>}
        {roundTripMs !== undefined && <span>{roundTripMs.toFixed(0)} ms round trip</span>}
      </p>
    </div>
  );
}
