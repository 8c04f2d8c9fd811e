import type { Golden } from "@/api/golden";
import type { Schema } from "@/api/server";
import { Badge } from "@/widgets/badge/Badge";
import { significant } from "@/widgets/format/numbers";
import { Scroller } from "@/widgets/scroll/Scroller";
import { answeredText, areComparable, inputText, recordedText, scoreOf } from "./golden";
import styles from "./golden.module.css";

type Predictions = Schema<"PredictResponse">["predictions"];

interface Props {
  examples: readonly Golden[];
  task: Record<string, unknown>;
  /** What the server answers now, in the order of the examples. */
  now: Predictions | undefined;
}

export function GoldenTable({ examples, task, now }: Props) {
  return (
    <Scroller label="Golden examples and their answers">
      <table className={styles.table}>
        <thead>
          <tr>
            <th scope="col">Input</th>
            <th scope="col">Recorded</th>
            <th scope="col">Now</th>
          </tr>
        </thead>
        <tbody>
          {examples.map((golden, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the examples of a version never change.
            <tr key={index}>
              <td className={styles.input}>{inputText(golden.input)}</td>
              <td>{recordedText(golden, task)}</td>
              <td>
                <Now prediction={now?.[index]} recorded={areComparable(task) ? recordedText(golden, task) : null} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroller>
  );
}

function Now({ prediction, recorded }: { prediction: Predictions[number] | undefined; recorded: string | null }) {
  if (!prediction) return <>…</>;
  const text = answeredText(prediction);
  const score = scoreOf(prediction);
  return (
    <>
      {text} {score !== null && text !== String(score) && <span className={styles.score}>{significant(score)}</span>}{" "}
      {recorded !== null && recorded !== text && <Badge tone="warn">differs</Badge>}
    </>
  );
}
