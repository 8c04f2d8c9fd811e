import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { aliasesQuery } from "@/api/adapters";
import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Card } from "@/widgets/card/Card";
import { RolloutPanel } from "./RolloutPanel";
import styles from "./rollouts.module.css";
import { StartDialog } from "./StartDialog";

interface Props {
  adapter: Schema<"Adapter">;
  versions: readonly Schema<"VersionSummary">[];
}

/** The newest guarded rollout of each alias, and a button that begins one. */
export function RolloutCard({ adapter, versions }: Props) {
  const [isStarting, setIsStarting] = useState(false);
  const aliases = useQuery(aliasesQuery(adapter.name)).data?.aliases ?? [];
  const known = versions.map(({ version }) => version);
  const single = aliases.filter((alias) => Object.keys(alias.versions).length === 1);
  const canStart = single.length > 0 && known.length > 1;
  const start = (
    <Button onClick={() => setIsStarting(true)} disabled={!canStart}>
      Try a version
    </Button>
  );
  return (
    <Card title="Guarded rollouts" actions={start}>
      <p className={styles.note}>
        {canStart
          ? "A version is tried behind an alias. Feedback and failures decide whether the alias then means it."
          : "To try a version, the adapter needs two versions and an alias that means one of them."}
      </p>
      {aliases.map(({ alias }) => (
        <RolloutPanel key={alias} adapter={adapter} alias={alias} />
      ))}
      {isStarting && (
        <StartDialog name={adapter.name} aliases={single} known={known} onClose={() => setIsStarting(false)} />
      )}
    </Card>
  );
}
