import { useState } from "react";
import { Button } from "@/widgets/button/Button";
import { DropArea } from "@/widgets/file/DropArea";
import { FilesButton } from "@/widgets/file/FilesButton";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { useNotice } from "@/widgets/notice/notices";
import { ReportView } from "@/widgets/report/ReportView";
import { EmptyState } from "@/widgets/states/EmptyState";
import { open, useOpened } from "./opened";
import styles from "./Reports.module.css";

/** Reports of trainings, opened from files. They are read here and sent nowhere. */
export default function ReportsPage() {
  const opened = useOpened();
  const [chosen, setChosen] = useState<string | null>(null);
  const notify = useNotice();
  const shown = opened.find(({ file }) => file === chosen) ?? opened[0];
  const take = async (files: readonly File[]) => {
    const first = files[0]?.name ?? null;
    for (const text of await open(files)) notify({ tone: "bad", text });
    setChosen(first);
  };
  return (
    <DropArea onFiles={take}>
      <PageHeading
        title="Reports"
        about="Reports of peltier train. They are read in this tab and sent nowhere; a published one is on its adapter's page."
      >
        <FilesButton
          label="Open a report"
          what="Report files"
          accept=".json,application/json"
          kind="primary"
          onFiles={take}
        />
      </PageHeading>
      {opened.length > 1 && (
        <nav className={styles.files} aria-label="Opened reports">
          {opened.map(({ file }) => (
            <Button
              key={file}
              kind={file === shown?.file ? "primary" : "plain"}
              aria-pressed={file === shown?.file}
              onClick={() => setChosen(file)}
            >
              {file}
            </Button>
          ))}
        </nav>
      )}
      {shown ? (
        <ReportView key={shown.file} report={shown.report} />
      ) : (
        <EmptyState title="No report is open">
          <p>
            <code>peltier train</code> writes <code>NAME.report.json</code> beside the artifact. Drop that file here, or
            open it with the button above.
          </p>
        </EmptyState>
      )}
    </DropArea>
  );
}
