import { Figure } from "@/widgets/figure/Figure";
import { significant } from "@/widgets/format/numbers";
import { PlainTable } from "./PlainTable";
import type { Mistake } from "./report";

/** Validation rows with wrong answers, the surest first. */
export function Mistakes({ mistakes }: { mistakes: readonly Mistake[] }) {
  return (
    <Figure title="Mistakes" isWide>
      <PlainTable
        head={["Text", "Label", "Answer", "Score"]}
        texts={3}
        rows={mistakes.map(({ input, label, answer, score }) => [
          input.join(" · "),
          label,
          answer,
          score === null ? "–" : significant(score),
        ])}
      />
    </Figure>
  );
}
