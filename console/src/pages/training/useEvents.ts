import { useEffect, useRef, useState } from "react";
import { followTraining, type TrainingEvent } from "@/api/trainings";

interface Followed {
  /** Oldest first. */
  events: readonly TrainingEvent[];
  /** The stream is lost and is being connected again. */
  isLost: boolean;
  error: Error | null;
}

// Earlier events come all at once; each would draw the charts again.
const COLLECT_MS = 100;

/** The events of a training as they happen. When `hasEnded` changes, the stream is opened again after the last event. */
export function useEvents(id: string, hasEnded: boolean): Followed {
  const [events, setEvents] = useState<readonly TrainingEvent[]>([]);
  const [isLost, setLost] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const lastId = useRef(0);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a resumed training has new events after its last one.
  useEffect(() => {
    const controller = new AbortController();
    let arrived: TrainingEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      const newer = arrived;
      arrived = [];
      timer = undefined;
      setEvents((before) => [...before, ...newer]);
    };
    const take = (event: TrainingEvent) => {
      lastId.current = event.id;
      arrived.push(event);
      timer ??= setTimeout(show, COLLECT_MS);
    };
    const connected = (isConnected: boolean) => {
      if (!controller.signal.aborted) setLost(!isConnected);
    };
    followTraining(id, lastId.current, take, connected, controller.signal)
      .then(() => !controller.signal.aborted && setLost(false))
      .catch((failure: Error) => !controller.signal.aborted && setError(failure));
    return () => {
      controller.abort();
      if (timer !== undefined) {
        clearTimeout(timer);
        show();
      }
    };
  }, [id, hasEnded]);
  return { events, isLost, error };
}
