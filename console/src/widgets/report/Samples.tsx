import { Figure } from "@/widgets/figure/Figure";
import { PlainTable } from "./PlainTable";
import type { Report } from "./report";

/** A few inputs with what was generated for them. */
export function Samples({ samples }: { samples: NonNullable<Report["samples"]> }) {
  return (
    <Figure title="Samples" isWide>
      <PlainTable
        head={["Input", "References", "Generated"]}
        texts={3}
        rows={samples.map(({ input, references, text }) => [
          typeof input === "string" ? input : input.join(" · "),
          references.join(" · "),
          text,
        ])}
      />
    </Figure>
  );
}
