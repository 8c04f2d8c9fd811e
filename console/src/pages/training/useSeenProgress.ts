import { useEffect, useState } from "react";
import type { Progress } from "./curves";

const MAX_SEEN = 5_000;

/** Every progress that this page was given, oldest first. */
export function useSeenProgress(progress: Progress | null): readonly Progress[] {
  const [seen, setSeen] = useState<readonly Progress[]>([]);
  useEffect(() => {
    if (progress?.step == null) return;
    setSeen((before) => (before.at(-1)?.step === progress.step ? before : [...before, progress].slice(-MAX_SEEN)));
  }, [progress]);
  return seen;
}
