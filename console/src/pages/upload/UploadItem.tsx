import { Link } from "wouter";
import { Badge } from "@/widgets/badge/Badge";
import { Button } from "@/widgets/button/Button";
import { Digest } from "@/widgets/digest/Digest";
import { bytes, percent } from "@/widgets/format/numbers";
import { Report } from "./Report";
import styles from "./upload.module.css";
import type { Item } from "./useUploads";

interface Props {
  item: Item;
  onCancel: () => void;
  onAgain: () => void;
}

/** One file: how far it is, and what became of it. */
export function UploadItem({ item, onCancel, onAgain }: Props) {
  const { file, report } = item.artifact;
  return (
    <section className={styles.item} aria-label={file.name}>
      <div className={styles.line}>
        <strong className={styles.file}>{file.name}</strong>
        <span className={styles.note}>
          {bytes(file.size)}
          {report && `, with ${report.name}`}
        </span>
        <span className={styles.state}>
          <State item={item} onCancel={onCancel} onAgain={onAgain} />
        </span>
      </div>
      {item.state === "sending" && (
        <progress className={styles.progress} value={item.share} aria-label={`Sent of ${file.name}`} />
      )}
      {item.state === "published" && <Published item={item} />}
      {item.state === "failed" && <Report error={item.error} header={item.header} />}
    </section>
  );
}

function State({ item, onCancel, onAgain }: Props) {
  switch (item.state) {
    case "waiting":
    case "sending":
      return (
        <>
          <span role="status">{progressText(item)}</span>
          <Button onClick={onCancel}>Cancel</Button>
        </>
      );
    case "published":
      return <Badge tone="good">{item.version.created === false ? "existed" : "published"}</Badge>;
    case "failed":
      return (
        <>
          <Badge tone="bad">{item.error.code === "cancelled" ? "cancelled" : "refused"}</Badge>
          <Button onClick={onAgain}>Try again</Button>
        </>
      );
  }
}

function progressText(item: Item & { state: "waiting" | "sending" }): string {
  if (item.state === "waiting") return "Waiting";
  return item.share < 1 ? `Sending ${percent(item.share, 0)}` : "The server checks it";
}

function Published({ item: { version } }: { item: Item & { state: "published" } }) {
  const live = Object.entries(version.live ?? {}).map(([number, share]) => `v${number} ${percent(share)}`);
  return (
    <p className={styles.published}>
      <Link href={`/adapters/${version.name}?version=${version.version}`}>
        {version.name} version {version.version}
      </Link>
      <Digest value={version.digest} />
      <span className={styles.note}>The bare name means {live.join(" · ")} now.</span>
    </p>
  );
}
