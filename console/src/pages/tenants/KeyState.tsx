import { Badge } from "@/widgets/badge/Badge";
import { instant, relative } from "@/widgets/time/format";
import type { Key } from "./KeyTable";

/** Whether a key is valid, and until when. */
export function KeyState({ apiKey: { revoked_at, expires_at } }: { apiKey: Key }) {
  if (revoked_at !== null) return <Badge title={instant(new Date(revoked_at))}>revoked</Badge>;
  if (expires_at === null) return <Badge tone="good">valid</Badge>;
  const end = new Date(expires_at);
  const isOver = end.getTime() <= Date.now();
  return (
    <Badge tone={isOver ? "neutral" : "warn"} title={instant(end)}>
      {isOver ? "expired" : `expires ${relative(end)}`}
    </Badge>
  );
}
