import { Figure } from "@/widgets/figure/Figure";
import { bytes, counted, percent, whole } from "@/widgets/format/numbers";
import type { Snapshot } from "./snapshot";
import styles from "./Tiers.module.css";

const NAMES: Readonly<Record<string, string>> = { device: "Device", host: "Host memory" };

/** What each cache tier holds of its bound, and where adapters in demand were found. */
export function Tiers({ snapshot }: { snapshot: Snapshot }) {
  return (
    <Figure title="Cache tiers">
      <dl className={styles.tiers}>
        {snapshot.tiers.map((tier) => (
          <div key={tier.name}>
            <dt>
              {NAMES[tier.name]} · {counted(tier.adapters, "adapter")}
            </dt>
            <dd>
              <meter
                className={styles.meter}
                min={0}
                max={tier.maxBytes}
                value={tier.bytes}
                aria-label={`${NAMES[tier.name]} in use`}
              />
              <span className={styles.note}>
                {bytes(tier.bytes)} of {bytes(tier.maxBytes)} ({percent(tier.bytes / tier.maxBytes)}) ·{" "}
                {counted(tier.evictions, "eviction")} since the start
              </span>
            </dd>
          </div>
        ))}
        <div>
          <dt>Lookups since the start</dt>
          <dd className={styles.note}>{lookups(snapshot)}</dd>
        </div>
      </dl>
    </Figure>
  );
}

function lookups({ lookups: found, loads }: Snapshot): string {
  const total = Array.from(found.values()).reduce((all, count) => all + count, 0);
  if (total === 0) return "None yet.";
  const shares = Array.from(found, ([tier, count]) => `${tier} ${percent(count / total)}`);
  return `${whole(total)}: ${shares.join(", ")} · ${counted(loads, "load")}`;
}
