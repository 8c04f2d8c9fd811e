// What a task reference means: the kind of its task and the form of its inputs.
import { queryOptions } from "@tanstack/react-query";
import { ApiError } from "./error";
import { answer, api, type Schema } from "./server";

export interface Task {
  /** The reference that was asked about. */
  reference: string;
  type: string;
  inputs: "single" | "pair" | "triple";
  labels: readonly string[];
  maxLength: number;
  preset: string;
  version: number;
}

/** The task of `name`, `name@3` or `name@alias`; null for one that cannot be looked up: another tenant's. */
export function taskOf(reference: string) {
  return queryOptions({
    queryKey: ["adapters", "task", reference],
    queryFn: async ({ signal }): Promise<Task | null> => {
      const { tenant, name, selector } = splitReference(reference);
      if (tenant !== null || name.startsWith("_")) return null;
      return /^\d+$/.test(selector) ? versionOf(reference, name, Number(selector), signal) : newest(reference, signal);
    },
    enabled: reference !== "",
    retry: false,
  });
}

export function splitReference(reference: string): { tenant: string | null; name: string; selector: string } {
  const colon = reference.lastIndexOf(":");
  const [name = "", selector = ""] = reference.slice(colon + 1).split("@", 2);
  return { tenant: colon < 0 ? null : reference.slice(0, colon), name, selector };
}

async function versionOf(reference: string, name: string, version: number, signal: AbortSignal): Promise<Task> {
  const path = { name, version };
  return asTask(
    reference,
    await answer(api.GET("/v1/adapters/{name}/versions/{version}", { params: { path }, signal })),
  );
}

/** The newest version stands for an alias and for a bare name, whose version the server chooses for each request. */
async function newest(reference: string, signal: AbortSignal): Promise<Task> {
  const { name, selector } = splitReference(reference);
  const adapter = await answer(api.GET("/v1/adapters/{name}", { params: { path: { name } }, signal }));
  if (selector && !(selector in (adapter.aliases ?? {}))) {
    throw new ApiError(`${name} has no alias ${JSON.stringify(selector)}.`, 404, "version_not_found");
  }
  const shares = selector ? adapter.aliases?.[selector] : adapter.live;
  const [version = adapter.latest.version] = Object.keys(shares ?? {}).map(Number);
  return version === adapter.latest.version
    ? asTask(reference, adapter.latest)
    : versionOf(reference, name, version, signal);
}

function asTask(reference: string, { task, preset, version }: Schema<"AdapterVersion">): Task {
  return {
    reference,
    type: task.type,
    inputs: task.inputs,
    labels: task.labels,
    maxLength: task.max_length,
    preset,
    version,
  };
}
