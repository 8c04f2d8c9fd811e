import { Link } from "wouter";
import { Figure } from "@/widgets/figure/Figure";
import { counted, whole } from "@/widgets/format/numbers";
import type { Snapshot } from "./point";
import styles from "./Quarantine.module.css";

/** The versions that this replica refuses after repeated failures. */
export function Quarantine({ snapshot }: { snapshot: Snapshot }) {
  const { quarantine, quarantined } = snapshot;
  return (
    <Figure title="In quarantine" isWide>
      <p className={styles.advice}>
        After three failures in a row a replica refuses a version for a while. Roll its alias back, or delete it.
      </p>
      <ul className={styles.list}>
        {quarantine.map(({ tenant, adapter, num_failures, reason, retry_after_seconds }) => (
          <li key={`${tenant} ${adapter.tenant}:${adapter.name}@${adapter.version}`}>
            <Link href={`/adapters/${adapter.name}`}>
              {adapter.name}@{adapter.version}
            </Link>{" "}
            of {adapter.tenant}, for requests of {tenant}: {counted(num_failures, "failure")}, tried again in{" "}
            {whole(retry_after_seconds)} s. {reason}
          </li>
        ))}
      </ul>
      {quarantined > quarantine.length && <p>{whole(quarantined - quarantine.length)} more are not listed.</p>}
    </Figure>
  );
}
