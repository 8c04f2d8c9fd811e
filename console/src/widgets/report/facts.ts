// Parts of a report as names and values.
import { bytes, duration, significant, whole } from "@/widgets/format/numbers";
import type { Counted, Report } from "./report";

export type Fact = readonly [name: string, value: string];

export function parameterFacts({ parameters }: Report): Fact[] {
  const fact = ({ part, parameters: count, percent }: Counted): Fact => [
    part,
    `${whole(count)} (${significant(percent)} %)`,
  ];
  return [
    ...(parameters.parts ?? []).map(fact),
    fact(parameters.total),
    fact(parameters.trained),
    ["backbone", whole(parameters.backbone)],
  ];
}

export function costFacts({ cost }: Report): Fact[] {
  return [
    ["device", `${cost.device}, ${cost.dtype}`],
    ...(cost.seconds_per_epoch === null ? [] : [["an epoch", duration(cost.seconds_per_epoch)] as const]),
    ["training", duration(cost.training_seconds)],
    ["in all", duration(cost.total_seconds)],
    ["memory", bytes(cost.memory_bytes)],
    ...(cost.device_memory_bytes === null ? [] : [["on the device", bytes(cost.device_memory_bytes)] as const]),
  ];
}

/** What was used of the settings, and those of the preset. */
export function settingFacts({ training, resolved }: Report): Fact[] {
  const { settings, ...others } = training.hyperparameters ?? {};
  const own = typeof settings === "object" && settings !== null ? settings : {};
  return factsOf({ ...others, ...(resolved ?? {}), ...own });
}

export function dataFacts({ training, task }: Report): Fact[] {
  return [...factsOf(training.data ?? {}), ["labels", whole(task.labels?.length ?? 0)]];
}

function factsOf(values: Readonly<Record<string, unknown>>): Fact[] {
  return Object.entries(values)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => [name.replaceAll("_", " "), textOf(value)]);
}

function textOf(value: unknown): string {
  if (typeof value === "number") return significant(value, 4);
  return typeof value === "string" ? value : JSON.stringify(value);
}
