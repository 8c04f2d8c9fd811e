import { Figure } from "@/widgets/figure/Figure";
import { Curve } from "@/widgets/report/Curve";
import type { CurvePoint } from "@/widgets/report/report";
import type { TrainingCurves } from "./curves";

interface Props {
  curves: TrainingCurves;
  hasEnded: boolean;
}

const HEIGHT = 170;

/** Loss, validation and learning rate over epochs. They grow while the training runs. */
export function CurveFigures({ curves, hasEnded }: Props) {
  const { metric, loss, validation, learningRate, bestStep } = curves;
  const isEmpty = loss.length + validation.length + learningRate.length === 0;
  if (isEmpty && hasEnded) return null;
  return (
    <>
      <LiveCurve name="Training loss" points={loss} best={null} hasEnded={hasEnded} />
      <LiveCurve
        name={metric ? `Validation ${metric.replaceAll("_", " ")}` : "Validation"}
        points={validation}
        best={bestStep}
        hasEnded={hasEnded}
      />
      <LiveCurve name="Learning rate" points={learningRate} best={null} hasEnded={hasEnded} />
    </>
  );
}

interface CurveProps {
  name: string;
  points: readonly CurvePoint[];
  best: number | null;
  hasEnded: boolean;
}

function LiveCurve({ name, points, best, hasEnded }: CurveProps) {
  if (points.length > 0) return <Curve name={name} points={points} best={best} />;
  return (
    <Figure title={name}>
      <Figure.Nothing height={HEIGHT}>{hasEnded ? "None was recorded." : "Nothing yet."}</Figure.Nothing>
    </Figure>
  );
}
