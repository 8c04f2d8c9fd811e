// The reports that were opened in this tab. They stay while other pages are shown.
import { useSyncExternalStore } from "react";
import { type Report, readReport } from "@/widgets/report/report";

export interface Opened {
  file: string;
  report: Report;
}

let all: readonly Opened[] = [];
const listeners = new Set<() => void>();

export function useOpened(): readonly Opened[] {
  return useSyncExternalStore(subscribe, () => all);
}

/** Opens files; returns a sentence for each that is no report. */
export async function open(files: Iterable<File>): Promise<string[]> {
  const refusals: string[] = [];
  for (const file of files) {
    try {
      const report = readReport(file.name, await file.text());
      all = [{ file: file.name, report }, ...all.filter((one) => one.file !== file.name)];
    } catch (error) {
      refusals.push(error instanceof Error ? error.message : String(error));
    }
  }
  for (const listener of listeners) listener();
  return refusals;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
