import type { TrainingEvent } from "@/api/trainings";
import { Figure } from "@/widgets/figure/Figure";
import { Scroller } from "@/widgets/scroll/Scroller";
import { Time } from "@/widgets/time/Time";
import styles from "./Training.module.css";

const MAX_SHOWN = 300;
const MAX_HEIGHT = 260;

/** What happened to a training, newest first. */
export function EventLog({ events }: { events: readonly TrainingEvent[] }) {
  if (events.length === 0) return null;
  return (
    <Figure title="Log" isWide>
      <Scroller label="Events" maxHeight={MAX_HEIGHT}>
        <ol className={styles.log}>
          {events
            .slice(-MAX_SHOWN)
            .reverse()
            .map(({ id, at, message }) => (
              <li key={id}>
                <span className={styles.at}>
                  <Time value={at} />
                </span>
                <span>{message}</span>
              </li>
            ))}
        </ol>
      </Scroller>
    </Figure>
  );
}
