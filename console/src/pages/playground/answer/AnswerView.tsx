import type { Prediction } from "@/api/predictions";
import { type Input, textsOf } from "@/rows/input";
import { Badge } from "@/widgets/badge/Badge";
import { significant } from "@/widgets/format/numbers";
import styles from "./AnswerView.module.css";
import { Generated } from "./Generated";
import { MarkedText } from "./MarkedText";
import { Scores } from "./Scores";
import { vectorsText } from "./summary";
import { Vector } from "./Vector";

interface Props {
  prediction: Prediction;
  input: Input;
}

/** One prediction of any kind. */
export function AnswerView({ prediction, input }: Props) {
  if ("text" in prediction) return <Generated prediction={prediction} />;
  if ("label" in prediction) return <Scores scores={prediction.scores} chosen={[prediction.label]} />;
  if ("labels" in prediction) {
    const { labels, scores } = prediction;
    return (
      <div className={styles.several}>
        <p>{labels.length ? `${labels.length} of ${Object.keys(scores).length} labels apply.` : "No label applies."}</p>
        <Scores scores={scores} chosen={labels} />
      </div>
    );
  }
  if ("value" in prediction) return <p className={styles.value}>{significant(prediction.value, 6)}</p>;
  if ("embedding" in prediction) return <Vector values={prediction.embedding} />;
  if ("terms" in prediction) {
    return (
      <Scores scores={Object.fromEntries(prediction.terms.map(({ term, weight }) => [term, weight]))} chosen={[]} />
    );
  }
  if ("vectors" in prediction) return <p>{vectorsText(prediction.vectors)}</p>;
  if ("entities" in prediction) {
    const { entities, truncated_at } = prediction;
    return (
      <div className={styles.several}>
        {entities.length === 0 && <p>No entity was found.</p>}
        <MarkedText text={textsOf(input)[0] ?? ""} marks={entities} readUntil={truncated_at} />
      </div>
    );
  }
  if ("answer" in prediction) return <SpanAnswer {...prediction} context={textsOf(input)[1] ?? ""} />;
  return <p className={styles.value}>{prediction.score.toFixed(4)}</p>;
}

interface SpanProps {
  answer: string;
  start: number;
  end: number;
  score: number;
  context: string;
}

function SpanAnswer({ answer, start, end, score, context }: SpanProps) {
  if (!answer) {
    return (
      <div className={styles.several}>
        <p>
          <Badge tone="warn">no answer</Badge> The context does not answer the question; score {score.toFixed(4)}.
        </p>
        <MarkedText text={context} marks={[]} />
      </div>
    );
  }
  return (
    <div className={styles.several}>
      <p className={styles.value}>{answer}</p>
      <MarkedText text={context} marks={[{ start, end, label: "answer", score }]} />
    </div>
  );
}
