// Artifacts with the reports beside them.
import type { Artifact } from "@/api/upload";

const REPORT = ".report.json";

/** Each artifact with its report, NAME.report.json of NAME.safetensors, and the names of reports without an artifact. */
export function pairUp(files: readonly File[]): { artifacts: Artifact[]; lonely: string[] } {
  const reports = new Map(files.filter(({ name }) => name.endsWith(REPORT)).map((file) => [file.name, file]));
  const artifacts = files
    .filter(({ name }) => !name.endsWith(REPORT))
    .map((file) => ({ file, report: reports.get(file.name.replace(/\.safetensors$/, "") + REPORT) ?? null }));
  const used = new Set(artifacts.map(({ report }) => report));
  return { artifacts, lonely: [...reports.values()].filter((file) => !used.has(file)).map(({ name }) => name) };
}
