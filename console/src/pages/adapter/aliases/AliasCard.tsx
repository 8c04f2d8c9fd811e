import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { aliasesQuery } from "@/api/adapters";
import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Card } from "@/widgets/card/Card";
import { ErrorState } from "@/widgets/states/ErrorState";
import { AliasEditor } from "./AliasEditor";
import styles from "./aliases.module.css";
import { NewAliasDialog } from "./NewAliasDialog";

interface Props {
  name: string;
  versions: readonly Schema<"VersionSummary">[];
}

/** The aliases with the versions that they mean. */
export function AliasCard({ name, versions }: Props) {
  const [isAdding, setIsAdding] = useState(false);
  const aliases = useQuery(aliasesQuery(name));
  const known = versions.map(({ version }) => version);
  return (
    <Card title="Aliases and splits" actions={<Button onClick={() => setIsAdding(true)}>New alias</Button>}>
      {aliases.isError && <ErrorState error={aliases.error} onRetry={() => void aliases.refetch()} />}
      {aliases.data?.aliases.length === 0 && (
        <p className={styles.none}>
          No alias yet. The name alone means the newest version that is not deprecated. An alias <code>production</code>{" "}
          decides it instead, and can split requests between versions.
        </p>
      )}
      <div className={styles.aliases}>
        {aliases.data?.aliases.map((alias) => (
          <AliasEditor key={`${alias.alias} ${alias.created_at}`} name={name} alias={alias} known={known} />
        ))}
      </div>
      {isAdding && <NewAliasDialog name={name} known={known} onClose={() => setIsAdding(false)} />}
    </Card>
  );
}
