import { Link } from "wouter";
import { splitReference, type Task } from "@/api/tasks";
import { Badge } from "@/widgets/badge/Badge";
import { counted } from "@/widgets/format/numbers";
import styles from "./layout.module.css";

/** What the chosen task is, in a line. */
export function TaskFacts({ task }: { task: Task }) {
  const { reference, type, labels, maxLength, preset, version } = task;
  return (
    <p className={styles.facts}>
      <Badge tone="accent">{type}</Badge>
      <Badge>{preset}</Badge>
      {labels.length > 1 && <span>{counted(labels.length, "label")}</span>}
      <span>at most {counted(maxLength, "token")}</span>
      <Link href={`/adapters/${splitReference(reference).name}`}>version {version}</Link>
    </p>
  );
}
