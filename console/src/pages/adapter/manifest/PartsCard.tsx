import { useQuery } from "@tanstack/react-query";
import { manifestQuery } from "@/api/adapters";
import type { Schema } from "@/api/server";
import { Card } from "@/widgets/card/Card";
import { compact, percent, whole } from "@/widgets/format/numbers";
import { Scroller } from "@/widgets/scroll/Scroller";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import styles from "./manifest.module.css";

type Part = Schema<"PartCounts">;

interface Props {
  name: string;
  version: number;
}

/** The parts of a version with their parameters, in all and in each block of the backbone. */
export function PartsCard({ name, version }: Props) {
  const answered = useQuery(manifestQuery(name, version));
  const parts = answered.data?.parts ?? [];
  return (
    <Card title={`Parts of v${version}`}>
      {answered.isPending && <Loading label="Loading the parts" />}
      {answered.isError && <ErrorState error={answered.error} onRetry={() => void answered.refetch()} />}
      {answered.data && parts.length === 0 && (
        <p className={styles.note}>This version was trained on another backbone, so that it cannot answer here.</p>
      )}
      {answered.data && parts.length > 0 && <PartTable parts={parts} manifest={answered.data.manifest} />}
    </Card>
  );
}

function PartTable({ parts, manifest }: { parts: readonly Part[]; manifest: Record<string, unknown> }) {
  const numBlocks = Math.max(...parts.map(({ blocks = [] }) => blocks.length));
  const largest = Math.max(1, ...parts.flatMap(({ blocks = [] }) => blocks));
  const total = parts.reduce((sum, part) => (part.kind === "head" ? sum : sum + part.parameters), 0);
  const ofBackbone = total / backboneSize(manifest);
  return (
    <>
      <p className={styles.note}>
        {whole(total)} parameters without the head: {percent(ofBackbone, 3)} of the backbone. Columns are blocks.
      </p>
      <Scroller label="Parameters by part and block">
        <table className={styles.parts}>
          <thead>
            <tr>
              <th scope="col">Part</th>
              <th scope="col">Total</th>
              <th scope="col">Shared</th>
              {numbers(numBlocks).map((block) => (
                <th scope="col" key={block}>
                  {block + 1}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {parts.map((part, index) => (
              <PartRow
                key={part.kind}
                part={part}
                settings={settingsOf(manifest, index)}
                numBlocks={numBlocks}
                largest={largest}
              />
            ))}
          </tbody>
        </table>
      </Scroller>
    </>
  );
}

interface RowProps {
  part: Part;
  settings: string;
  numBlocks: number;
  largest: number;
}

function PartRow({ part: { kind, parameters, blocks = [] }, settings, numBlocks, largest }: RowProps) {
  const shared = parameters - blocks.reduce((sum, count) => sum + count, 0);
  return (
    <tr>
      <th scope="row">
        {kind}
        <span className={styles.settings} title={settings}>
          {settings}
        </span>
      </th>
      <td>{whole(parameters)}</td>
      <td>{shared > 0 ? compact(shared) : "–"}</td>
      {numbers(numBlocks).map((block) => {
        const count = blocks[block] ?? 0;
        return (
          <td
            key={block}
            title={`${kind}, block ${block + 1}: ${whole(count)}`}
            style={{ background: shade(count / largest) }}
          >
            {count > 0 ? compact(count) : "–"}
          </td>
        );
      })}
    </tr>
  );
}

function numbers(count: number): number[] {
  return [...Array(count).keys()];
}

function shade(share: number): string | undefined {
  return share > 0 ? `color-mix(in srgb, var(--accent) ${Math.round(6 + 24 * share)}%, var(--surface))` : undefined;
}

function settingsOf(manifest: Record<string, unknown>, index: number): string {
  const specs = Array.isArray(manifest.parts) ? manifest.parts : [];
  const { kind: _, ...settings } = { ...(specs[index] as Record<string, unknown> | undefined) };
  return Object.entries(settings)
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}

function backboneSize(manifest: Record<string, unknown>): number {
  const backbone = manifest.backbone as { num_parameters?: number } | undefined;
  return backbone?.num_parameters ?? Number.NaN;
}
