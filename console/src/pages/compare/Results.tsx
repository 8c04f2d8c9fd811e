import { lazy, Suspense, useMemo } from "react";
import { compare } from "@/quality/comparison";
import { counted } from "@/widgets/format/numbers";
import panel from "@/widgets/panel/Panel.module.css";
import type { Run } from "@/widgets/run/useRun";
import { EmptyState } from "@/widgets/states/EmptyState";
import { InlineError } from "@/widgets/states/InlineError";
import { Loading } from "@/widgets/states/Loading";
import { kindOfBoth } from "./askBoth";
import styles from "./compare.module.css";
import { Differences } from "./Differences";
import type { Compared } from "./index";
import { LabelTable } from "./LabelTable";
import { MetricTable } from "./MetricTable";
import { Problems } from "./Problems";
import { verdictOf } from "./verdict";

// With it comes the library of charts.
const Confusions = lazy(() => import("./Confusions"));

/** What the comparison found so far. */
export function Results({ state }: { state: Run<Compared> }) {
  if (state.status === "idle") {
    return (
      <EmptyState title="Choose two versions and paste labelled rows">
        The rows stay in this page and go to the server only as predictions. For large files use{" "}
        <code>peltier compare</code>.
      </EmptyState>
    );
  }
  const { value } = state;
  return (
    <div className={styles.results}>
      {state.status === "failed" && <InlineError error={state.error} />}
      {state.status === "running" && <Progress compared={value} />}
      {value && value.asked.cases.length > 0 && <Found {...value} />}
      {value && value.asked.problems.length > 0 && <Problems problems={value.asked.problems} />}
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

function Found({ tasks, asked }: Compared) {
  const [first, second] = tasks;
  const kind = kindOfBoth(first, second);
  const found = useMemo(() => {
    const side = (task: typeof first, answers: typeof asked.first) => ({
      task: task.reference,
      names: task.labels,
      answers,
    });
    return compare(kind, asked.cases, side(first, asked.first), side(second, asked.second));
  }, [kind, asked, first, second]);
  const verdict = verdictOf(kind, found, first.reference, second.reference);
  const references = [first.reference, second.reference] as const;
  return (
    <>
      <section className={panel.panel} aria-label="Verdict">
        <h2>{verdict.who}</h2>
        <p>{verdict.where}</p>
        <p className={panel.note}>
          {verdict.chance} {counted(asked.cases.length, "row")} judged.
        </p>
      </section>
      <div className={styles.tables}>
        <MetricTable kind={kind} found={found} references={references} />
        <LabelTable found={found} references={references} />
      </div>
      {kind === "classification" && (
        <Suspense fallback={<Loading label="Loading charts" />}>
          <Confusions found={found} names={first.labels} references={references} />
        </Suspense>
      )}
      <Differences found={found} cases={asked.cases} references={references} />
    </>
  );
}
