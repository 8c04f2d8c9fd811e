import { useQuery } from "@tanstack/react-query";
import { manifestQuery } from "@/api/adapters";
import { type Golden, goldenOf } from "@/api/golden";
import { answer, api, type Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { Card } from "@/widgets/card/Card";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import { GoldenTable } from "./GoldenTable";
import styles from "./golden.module.css";

const MAX_SHOWN = 8;

interface Props {
  name: string;
  version: number;
}

/** The golden examples of a version with the recorded answers and those that the server gives now. */
export function GoldenCard({ name, version }: Props) {
  const manifest = useQuery(manifestQuery(name, version));
  const all = manifest.data ? goldenOf(manifest.data.manifest) : [];
  const shown = all.slice(0, MAX_SHOWN);
  const now = useQuery({
    queryKey: ["golden", name, version],
    queryFn: ({ signal }) => answersOf(`${name}@${version}`, shown, signal),
    enabled: shown.length > 0,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const task = (manifest.data?.manifest.task ?? {}) as Record<string, unknown>;
  return (
    <Card
      title="Golden examples"
      actions={
        <Button onClick={() => void now.refetch()} disabled={now.isFetching}>
          {now.isFetching ? "Asking…" : "Ask again"}
        </Button>
      }
    >
      {manifest.isPending && <Loading label="Loading the examples" />}
      {all.length > MAX_SHOWN && (
        <p className={styles.note}>
          The first {MAX_SHOWN} of {all.length}.
        </p>
      )}
      {shown.length > 0 && <GoldenTable examples={shown} task={task} now={now.data} />}
      {now.isError && <ErrorState error={now.error} onRetry={() => void now.refetch()} />}
    </Card>
  );
}

async function answersOf(task: string, examples: readonly Golden[], signal: AbortSignal) {
  const body = { inputs: examples.map(({ input }) => input) } as unknown as Schema<"PredictRequest">;
  const answered = await answer(api.POST("/v1/tasks/{task}/predict", { params: { path: { task } }, body, signal }));
  return (answered as Schema<"PredictResponse">).predictions;
}
