import { Curve } from "./Curve";
import type { Report } from "./report";

/** A chart of each curve over epochs; of those of the validation, the kept epoch has a mark. */
export function Curves({ curves }: { curves: Report["curves"] }) {
  const training = Object.entries(curves.training ?? {});
  const validation = Object.entries(curves.validation ?? {});
  return (
    <>
      {training.map(([name, points]) => (
        <Curve key={name} name={`Training ${name.replaceAll("_", " ")}`} points={points} best={null} />
      ))}
      {validation.map(([name, points]) => (
        <Curve
          key={name}
          name={`Validation ${name.replaceAll("_", " ")}`}
          points={points}
          best={curves.best_step ?? null}
        />
      ))}
    </>
  );
}
