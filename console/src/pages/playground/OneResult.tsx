import { Suspense } from "react";
import panel from "@/widgets/panel/Panel.module.css";
import type { Run } from "@/widgets/run/useRun";
import { EmptyState } from "@/widgets/states/EmptyState";
import { InlineError } from "@/widgets/states/InlineError";
import { Loading } from "@/widgets/states/Loading";
import { Streamed } from "./answer/Streamed";
import { WhoAnswered } from "./answer/WhoAnswered";
import type { Shown } from "./askOne";
import styles from "./layout.module.css";
import { OneAnswers } from "./OneAnswers";

interface Props {
  state: Run<Shown>;
  hasTask: boolean;
  /** An example of the adapter is filled in. */
  hasExample: boolean;
}

/** What one task answered, and who answered. */
export function OneResult({ state, hasTask, hasExample }: Props) {
  if (state.status === "idle") {
    return (
      <div className={styles.results}>
        {hasExample ? (
          <EmptyState title="Press “Predict”, or Ctrl+Enter">
            The input is a golden example of the adapter. Write your own over it.
          </EmptyState>
        ) : (
          <EmptyState title={hasTask ? "Write an input" : "Choose a task"}>
            {hasTask ? "Then press “Predict”, or Ctrl+Enter." : "A few letters of its name are enough."}
          </EmptyState>
        )}
      </div>
    );
  }
  const { value } = state;
  return (
    <div className={styles.results}>
      {state.status === "failed" && <InlineError error={state.error} />}
      {state.status === "running" && !value && <Loading label="Predicting" />}
      {value?.pieces && value.pieces.length > 0 && (
        <section className={panel.panel} aria-label="Streamed text">
          <Streamed pieces={value.pieces} isRunning={state.status === "running"} />
        </section>
      )}
      {value?.answered && (
        <Suspense fallback={<Loading label="Loading charts" />}>
          <OneAnswers {...value} answered={value.answered} />
        </Suspense>
      )}
      {value?.answered && (
        <section className={panel.panel} aria-label="Who answered">
          <h2>Who answered</h2>
          <WhoAnswered answered={value.answered} roundTripMs={state.status === "done" ? state.elapsedMs : undefined} />
        </section>
      )}
    </div>
  );
}
