import { useQuery } from "@tanstack/react-query";
import { manifestQuery } from "@/api/adapters";
import { Card } from "@/widgets/card/Card";
import { CopyButton } from "@/widgets/copy/CopyButton";
import { counted } from "@/widgets/format/numbers";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import styles from "./manifest.module.css";

interface Props {
  name: string;
  version: number;
}

/** The manifest of a version as JSON, without its golden examples, which have a card of their own. */
export function ManifestCard({ name, version }: Props) {
  const answered = useQuery(manifestQuery(name, version));
  const manifest = answered.data?.manifest;
  return (
    <Card
      title={`Manifest of v${version}`}
      actions={manifest && <CopyButton text={JSON.stringify(manifest, null, 2)} what="the manifest" />}
    >
      {answered.isPending && <Loading label="Loading the manifest" />}
      {answered.isError && <ErrorState error={answered.error} onRetry={() => void answered.refetch()} />}
      {manifest && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a keyboard scrolls the text.
        <pre className={styles.json} tabIndex={0}>
          {shown(manifest)}
        </pre>
      )}
    </Card>
  );
}

function shown(manifest: Record<string, unknown>): string {
  const golden = Array.isArray(manifest.golden) ? counted(manifest.golden.length, "example") : manifest.golden;
  return JSON.stringify({ ...manifest, golden }, null, 2);
}
