import { errorOfResult, type Result } from "@/api/predictions";
import type { Input } from "@/rows/input";
import { counted } from "@/widgets/format/numbers";
import panel from "@/widgets/panel/Panel.module.css";
import type { Run } from "@/widgets/run/useRun";
import { EmptyState } from "@/widgets/states/EmptyState";
import { InlineError } from "@/widgets/states/InlineError";
import { Loading } from "@/widgets/states/Loading";
import { AnswerView } from "./answer/AnswerView";
import { WhoAnswered } from "./answer/WhoAnswered";
import styles from "./layout.module.css";
import type { SeveralAnswers } from "./SeveralTasks";

interface Props {
  state: Run<SeveralAnswers>;
  hasTasks: boolean;
}

/** The answers of several tasks side by side; a task that failed has its error in its place. */
export function SeveralResults({ state, hasTasks }: Props) {
  if (state.status === "idle") {
    return (
      <EmptyState title={hasTasks ? "Write a text" : "Choose tasks"}>
        {hasTasks
          ? "Then press “Predict”, or Ctrl+Enter. All tasks answer in one request."
          : "Tasks of any kind, also a group such as “triage.*”, or “*” for every adapter."}
      </EmptyState>
    );
  }
  if (state.status === "failed") return <InlineError error={state.error} />;
  if (state.status === "running") return <Loading label="Predicting" />;
  const { ask, body } = state.value;
  const failed = body.results.filter((result) => "error" in result).length;
  return (
    <div className={styles.results}>
      <p className={styles.facts}>
        <span>
          {body.results.length - failed} of {counted(body.results.length, "task")} answered
        </span>
        <span>{state.elapsedMs.toFixed(0)} ms round trip</span>
      </p>
      <div className={styles.cards}>
        {body.results.map((result, place) => (
          <TaskCard key={body.tasks?.[place]} task={body.tasks?.[place] ?? ""} result={result} input={ask.input} />
        ))}
      </div>
    </div>
  );
}

function TaskCard({ task, result, input }: { task: string; result: Result; input: Input }) {
  return (
    <section className={panel.panel} aria-label={task}>
      <h2>{task}</h2>
      {"error" in result ? (
        <InlineError error={errorOfResult(result)} />
      ) : (
        <>
          {result.predictions[0] && <AnswerView prediction={result.predictions[0]} input={input} />}
          <WhoAnswered answered={result} />
        </>
      )}
    </section>
  );
}
