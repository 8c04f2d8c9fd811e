import { lazy } from "react";
import type { Answered } from "@/api/predictions";
import { type Input, textsOf } from "@/rows/input";
import panel from "@/widgets/panel/Panel.module.css";
import { Ranked } from "./answer/Ranked";
import type { Shown } from "./askOne";
import { OneAnswer } from "./OneAnswer";

// With them comes the library of charts.
const GateMap = lazy(() => import("./answer/GateMap"));
const SimilarityMap = lazy(() => import("./answer/SimilarityMap"));

/** The answers to the inputs of one request, drawn as the kind of the task wants them. */
export function OneAnswers({ ask, type, answered, pieces }: Shown & { answered: Answered }) {
  const inputs: readonly Input[] = ask.kind === "one" ? ask.inputs : [ask.input];
  const { predictions } = answered;
  const wantsGates = ask.parameters.return_gates === true;
  if (type === "ranking") {
    const scores = predictions.map((prediction) => ("score" in prediction ? prediction.score : 0));
    return (
      <section className={panel.panel} aria-label="Documents by relevance">
        <h2>Documents by relevance</h2>
        <Ranked documents={inputs.map((input) => textsOf(input)[1] ?? "")} scores={scores} />
        {wantsGates && predictions[0] && <GateMap prediction={predictions[0]} />}
      </section>
    );
  }
  const vectors = predictions.flatMap((prediction) => ("embedding" in prediction ? [prediction.embedding] : []));
  return (
    <>
      {vectors.length > 1 && vectors.length === inputs.length && (
        <section className={panel.panel} aria-label="Similarities">
          <h2>Similarities</h2>
          <SimilarityMap texts={inputs.map((input) => textsOf(input)[0] ?? "")} vectors={vectors} />
        </section>
      )}
      {predictions.map((prediction, place) => (
        <OneAnswer
          // biome-ignore lint/suspicious/noArrayIndexKey: answers have the order of their inputs.
          key={place}
          name={inputs.length > 1 ? `Answer ${place + 1}` : "Answer"}
          prediction={prediction}
          input={inputs[place] ?? ""}
          showsInput={inputs.length > 1}
          wantsGates={wantsGates}
          isStreamed={pieces !== undefined}
        />
      ))}
    </>
  );
}
