import { Figure } from "@/widgets/figure/Figure";
import { significant } from "@/widgets/format/numbers";
import { PlainTable } from "./PlainTable";
import type { Merging } from "./report";

/** AdaMix: the merged adapter beside the ways to answer with its experts. */
export function MergingTable({ merging, metric }: { merging: Merging; metric: string }) {
  return (
    <Figure title="Merged experts">
      <PlainTable
        head={["Answered by", `${metric}, mean`, "sd"]}
        rows={merging.ways.map(({ name, metrics }) => {
          const spread = metrics[metric];
          return [
            name,
            spread?.mean == null ? "–" : significant(spread.mean, 4),
            spread?.sd == null ? "–" : significant(spread.sd),
          ];
        })}
      />
    </Figure>
  );
}
