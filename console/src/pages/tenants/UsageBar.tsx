import { ShareBar } from "@/widgets/bar/ShareBar";
import { percent } from "@/widgets/format/numbers";
import styles from "./UsageBar.module.css";

interface Props {
  name: string;
  /** Null where it is not counted. */
  used: number | null;
  /** Null is no limit. */
  limit: number | null | undefined;
  format: (value: number) => string;
}

const NEARLY = 0.8;

/** A quota as a bar that fills. */
export function UsageBar({ name, used, limit, format }: Props) {
  const share = used === null || limit == null ? null : limit === 0 ? 1 : used / limit;
  return (
    <div className={styles.quota}>
      <div className={styles.name}>{name}</div>
      <ShareBar share={share} tone={toneOf(share ?? 0)} />
      <div className={styles.note}>
        {described(used, limit, format)}
        {share !== null && ` (${percent(share)})`}
      </div>
    </div>
  );
}

function toneOf(share: number): "bad" | "warn" | "accent" {
  if (share >= 1) return "bad";
  return share >= NEARLY ? "warn" : "accent";
}

function described(used: number | null, limit: number | null | undefined, format: Props["format"]): string {
  if (limit == null) return used === null ? "no limit" : `${format(used)}, no limit`;
  return `${format(used ?? 0)} of ${format(limit)}`;
}
