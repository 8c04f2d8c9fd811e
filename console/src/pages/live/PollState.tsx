import { useEffect, useState } from "react";
import { Badge } from "@/widgets/badge/Badge";
import { Time } from "@/widgets/time/Time";
import type { History } from "./history";
import styles from "./PollState.module.css";
import { POLL_MS } from "./usePolling";

interface Props {
  history: History;
  error: Error | null;
}

/** Says whether the numbers are of now, and what happens if they are not. */
export function PollState({ history, error }: Props) {
  const isHidden = useIsHidden();
  const last = history.latest && <Time value={new Date(history.latest.at).toISOString()} />;
  if (history.failures > 0) {
    return (
      <div className={styles.lost} role="alert">
        <Badge tone="bad">lost</Badge> {error?.message ?? "The server does not answer."} The numbers are of {last}. The
        page asks again by itself, at ever longer intervals up to half a minute.
      </div>
    );
  }
  return (
    <span>
      <Badge tone="good">live</Badge> every {POLL_MS / 1000} s · last answer {last}
      {isHidden && " · paused, because the tab is hidden"}
      {history.latest && Number.isFinite(history.latest.startedAt) && (
        <>
          {" "}
          · started <Time value={new Date(history.latest.startedAt).toISOString()} />
        </>
      )}
    </span>
  );
}

function useIsHidden(): boolean {
  const [isHidden, setHidden] = useState(document.hidden);
  useEffect(() => {
    const update = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", update);
    return () => document.removeEventListener("visibilitychange", update);
  }, []);
  return isHidden;
}
