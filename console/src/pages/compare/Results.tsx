import { lazy, Suspense } from "react";
import { counted } from "@/widgets/format/numbers";
import panel from "@/widgets/panel/Panel.module.css";
import type { Run } from "@/widgets/run/useRun";
import { EmptyState } from "@/widgets/states/EmptyState";
import { InlineError } from "@/widgets/states/InlineError";
import { Loading } from "@/widgets/states/Loading";
import styles from "./compare.module.css";
import { Differences } from "./Differences";
import type { Compared } from "./index";
import type { Judged } from "./judge";
import { LabelTable } from "./LabelTable";
import { MetricTable } from "./MetricTable";
import { Problems } from "./Problems";

// With it comes the library of charts.
const Confusions = lazy(() => import("./Confusions"));

/** What the comparison found so far. */
export function Results({ state }: { state: Run<Compared> }) {
  if (state.status === "idle") {
    return (
      <EmptyState title="Choose two versions and paste labelled rows">
        The rows go to the server to be answered and judged, and it keeps none of them. For large files use{" "}
        <code>peltier compare</code>.
      </EmptyState>
    );
  }
  const { value } = state;
  const problems = [...(value?.asked.problems ?? []), ...(value?.judged?.problems ?? [])];
  problems.sort((one, other) => one.line - other.line);
  return (
    <div className={styles.results}>
      {state.status === "failed" && <InlineError error={state.error} />}
      {state.status === "running" && <Progress compared={value} />}
      {value?.judged && value.judged.cases.length > 0 && <Found tasks={value.tasks} judged={value.judged} />}
      {problems.length > 0 && <Problems problems={problems} />}
    </div>
  );
}

function Progress({ compared }: { compared?: Compared }) {
  if (!compared) return <Loading label="Comparing" />;
  const { done, total } = compared.asked;
  return (
    <p className={styles.progress} role="status">
      <progress value={done} max={total} aria-label="Rows asked" /> {done} of {counted(total, "row")}
    </p>
  );
}

function Found({ tasks: [first, second], judged }: { tasks: Compared["tasks"]; judged: Judged }) {
  const { comparison, cases } = judged;
  const { verdict } = comparison;
  const references = [first.reference, second.reference] as const;
  return (
    <>
      <section className={panel.panel} aria-label="Verdict">
        <h2>{verdict.better}</h2>
        <p>{verdict.rows}</p>
        <p className={panel.note}>
          {verdict.chance} {counted(cases.length, "row")} judged.
        </p>
      </section>
      <div className={styles.tables}>
        <MetricTable found={comparison} references={references} />
        <LabelTable found={comparison} references={references} />
      </div>
      {comparison.task_type === "classification" && (
        <Suspense fallback={<Loading label="Loading charts" />}>
          <Confusions judged={judged} names={first.labels} references={references} />
        </Suspense>
      )}
      <Differences judged={judged} references={references} />
    </>
  );
}
