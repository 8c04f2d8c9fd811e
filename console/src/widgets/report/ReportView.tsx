import { Badge } from "@/widgets/badge/Badge";
import { Digest } from "@/widgets/digest/Digest";
import { Figure } from "@/widgets/figure/Figure";
import { bytes, percent } from "@/widgets/format/numbers";
import { ConfusionFigure } from "./ConfusionFigure";
import { Curves } from "./Curves";
import { Facts } from "./Facts";
import { costFacts, dataFacts, parameterFacts, settingFacts } from "./facts";
import { GatesFigure } from "./GatesFigure";
import { LabelScores } from "./LabelScores";
import { MergingTable } from "./MergingTable";
import { MetricsTable } from "./MetricsTable";
import { Mistakes } from "./Mistakes";
import styles from "./ReportView.module.css";
import { ResidualsFigure } from "./ResidualsFigure";
import type { Report } from "./report";
import { Samples } from "./Samples";

/** A whole report, with its name unless the page has it. */
export function ReportView({ report, hidesName = false }: { report: Report; hidesName?: boolean }) {
  const { artifact, warnings = [], confusion, residuals, gates, merging, mistakes, samples } = report;
  return (
    <article>
      <h2 className={hidesName ? "visually-hidden" : undefined}>
        {report.name} <Badge tone="accent">{report.preset}</Badge> <Badge>{report.task.type}</Badge>{" "}
        <Badge>{report.backbone.name}</Badge>
      </h2>
      <p className={styles.artifact}>
        {artifact ? (
          <>
            {artifact.file}, {bytes(artifact.bytes)}, <Digest value={artifact.digest} />
          </>
        ) : (
          `No artifact: ${report.reason ?? "this training wrote none"}`
        )}
      </p>
      {warnings.map((warning) => (
        <p key={warning} className={styles.warning}>
          {warning}
        </p>
      ))}
      <div className={styles.figures}>
        <MetricsTable report={report} />
        <Facts title="Parameters" facts={parameterFacts(report)} />
        <Facts title="Time and memory" facts={costFacts(report)} />
        <Curves curves={report.curves} />
        {gates && <GatesFigure gates={gates} />}
        {merging && <MergingTable merging={merging} metric={report.metric} />}
        {residuals && <ResidualsFigure residuals={residuals} />}
        {confusion && <ConfusionFigure confusion={confusion} />}
        {report.label_scores && <LabelScores scores={report.label_scores} />}
        {mistakes && mistakes.length > 0 && <Mistakes mistakes={mistakes} />}
        {samples && <Samples samples={samples} />}
        <Facts title="Settings" facts={settingFacts(report)} />
        <Facts title="Data" facts={dataFacts(report)} />
        {report.majority && (
          <Figure title="Majority">
            <p>
              Always answering “{report.majority.answer}”
              {report.majority.share != null && ` is right for ${percent(report.majority.share, 0)} of the rows`}.
            </p>
          </Figure>
        )}
      </div>
    </article>
  );
}
