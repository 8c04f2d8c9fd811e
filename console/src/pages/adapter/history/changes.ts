import type { Schema } from "@/api/server";
import { percent } from "@/widgets/format/numbers";

export interface Change {
  id: string;
  at: string;
  what: string;
  detail: string;
  actor: string;
}

const WORDS: Record<string, string> = {
  publish: "published",
  set_report: "stored the report of",
  set_alias: "set alias",
  rollback_alias: "rolled back alias",
  delete_alias: "deleted alias",
  deprecate: "changed the deprecation of",
  set_public: "changed who may use",
  delete_version: "deleted",
  undelete: "undeleted",
  delete_adapter: "deleted",
  start_rollout: "began to try a version behind",
  promote_candidate: "promoted the candidate of",
  roll_back_candidate: "rolled back the candidate of",
  stop_rollout: "stopped the rollout of",
};

export function changesOfAudit(records: readonly Schema<"AuditRecord">[]): Change[] {
  return records.map(({ id, at, action, subject, detail, actor }) => ({
    id: String(id),
    at,
    what: WORDS[action] ?? action,
    detail: [subject, detailText(detail)].filter(Boolean).join(": "),
    actor,
  }));
}

export function changesOfAlias(alias: string, changes: readonly Schema<"AliasChange">[]): Change[] {
  return changes.map(({ versions, created_at, created_by }) => ({
    id: `${alias} ${created_at}`,
    at: created_at,
    what: Object.keys(versions).length > 0 ? "set alias" : "deleted alias",
    detail: [alias, splitText(versions)].filter(Boolean).join(": "),
    actor: created_by,
  }));
}

function detailText(detail: Record<string, unknown>): string {
  if (typeof detail.split === "object" && detail.split !== null)
    return splitText(detail.split as Record<string, number>);
  // The card of rollouts has the numbers.
  if (typeof detail.rollout === "string") {
    const versions = `v${detail.candidate} beside v${detail.incumbent}`;
    return typeof detail.reason === "string" ? `${versions}: ${detail.reason}` : versions;
  }
  return Object.entries(detail)
    .filter(([name]) => name !== "digest")
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}

function splitText(split: Record<string, number>): string {
  return Object.entries(split)
    .map(([version, share]) => `v${version} ${percent(share)}`)
    .join(" · ");
}
