import { lazy } from "react";
import type { Prediction } from "@/api/predictions";
import { type Input, textsOf } from "@/rows/input";
import panel from "@/widgets/panel/Panel.module.css";
import { AnswerView } from "./answer/AnswerView";

// With it comes the library of charts.
const GateMap = lazy(() => import("./answer/GateMap"));

interface Props {
  /** For screen readers. */
  name: string;
  prediction: Prediction;
  input: Input;
  showsInput: boolean;
  wantsGates: boolean;
  isStreamed: boolean;
}

/** One input of several, or the only one, with its answer. */
export function OneAnswer({ name, prediction, input, showsInput, wantsGates, isStreamed }: Props) {
  return (
    <section className={panel.panel} aria-label={name}>
      {showsInput && <p className={panel.input}>{textsOf(input).join(" · ")}</p>}
      {isStreamed && <h2>The whole text</h2>}
      <AnswerView prediction={prediction} input={input} />
      {wantsGates && <GateMap prediction={prediction} />}
    </section>
  );
}
