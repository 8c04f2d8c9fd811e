import { useMutation } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { downloadArtifact } from "@/api/adapters";
import type { Schema } from "@/api/server";
import { useCommands } from "@/app/commands";
import { navigate } from "@/app/hash";
import { Badge } from "@/widgets/badge/Badge";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { counted } from "@/widgets/format/numbers";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { useNotice } from "@/widgets/notice/notices";
import styles from "./index.module.css";
import { useDeletion } from "./useDeletion";

interface Props {
  adapter: Schema<"Adapter">;
  versions: readonly Schema<"VersionSummary">[];
  shown: number;
}

/** The name of an adapter, what it is, and what can be done with all of it. */
export function AdapterHeading({ adapter, versions, shown }: Props) {
  const { name } = adapter;
  const [isAsking, setIsAsking] = useState(false);
  const notice = useNotice();
  const { removeAll } = useDeletion(name);
  const download = useMutation({
    mutationFn: () => downloadArtifact(name, shown),
    onError: (error) => notice({ text: error.message, tone: "bad" }),
  });
  const save = download.mutate;
  useCommands(
    useMemo(
      () => [
        { id: "adapter try", title: `Try ${name}`, group: "Adapter", run: () => navigate(`/playground?task=${name}`) },
        { id: "adapter download", title: `Download version ${shown}`, group: "Adapter", run: () => save() },
        { id: "adapter delete", title: `Delete ${name}`, group: "Adapter", run: () => setIsAsking(true) },
      ],
      [name, shown, save],
    ),
  );
  return (
    <PageHeading title={name} about={<Facts adapter={adapter} />}>
      <Button onClick={() => navigate(`/playground?task=${name}@${shown}`)}>Try it</Button>
      {versions.length > 1 && <Button onClick={() => navigate(comparison(name, versions, shown))}>Compare</Button>}
      <Button onClick={() => save()} disabled={download.isPending}>
        {download.isPending ? "Downloading…" : `Download v${shown}`}
      </Button>
      <Button kind="danger" onClick={() => setIsAsking(true)}>
        Delete
      </Button>
      {isAsking && (
        <Dialog title={`Delete ${name}?`} onClose={() => setIsAsking(false)}>
          <p>
            Its {counted(adapter.num_versions, "version")} and all aliases stop answering at once. The versions can be
            brought back for a while; the aliases cannot.
          </p>
          <Dialog.Actions>
            <Button onClick={() => setIsAsking(false)}>Keep it</Button>
            <Button
              kind="danger"
              onClick={() => {
                setIsAsking(false);
                removeAll(versions.map(({ version }) => version));
              }}
            >
              Delete
            </Button>
          </Dialog.Actions>
        </Dialog>
      )}
    </PageHeading>
  );
}

function Facts({ adapter: { latest, ...adapter } }: { adapter: Schema<"Adapter"> }) {
  const { task } = latest;
  return (
    <span className={styles.facts}>
      <span>{task.type}</span>
      <span>{latest.preset}</span>
      {task.labels.length > 0 && <span>{counted(task.labels.length, "label")}</span>}
      <span>
        {task.inputs} input, {counted(task.max_length, "token")}
      </span>
      {adapter.public && <Badge>public</Badge>}
    </span>
  );
}

function comparison(name: string, versions: Props["versions"], shown: number): string {
  const other = versions.find(({ version }) => version !== shown)?.version ?? shown;
  return `/compare?a=${name}@${Math.min(other, shown)}&b=${name}@${Math.max(other, shown)}`;
}
