import { Badge } from "@/widgets/badge/Badge";

type Tier = "device" | "host" | "store";

const TONES = { device: "good", host: "accent", store: "neutral" } as const;
const MEANINGS = {
  device: "On the device: answers at once",
  host: "Parsed in memory: is copied to the device first",
  store: "In the store: is read first",
};

/** Where an adapter is in the server's memory. */
export function TierBadge({ tier }: { tier: Tier | null }) {
  if (tier === null) return <span title="The server did not say">–</span>;
  return (
    <Badge tone={TONES[tier]} title={MEANINGS[tier]}>
      {tier}
    </Badge>
  );
}
