import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "wouter";
import { adapterSearch, manifestQuery } from "@/api/adapters";
import { goldenOf } from "@/api/golden";
import { serverInfo } from "@/api/info";
import type { Ask } from "@/api/predictions";
import { splitReference, taskOf } from "@/api/tasks";
import { exampleTexts } from "./form/example";
import { inputForm, inputsOf } from "./form/inputForm";
import { type ParameterValues, parameterFields, toParameters } from "./form/parameters";
import { useTexts } from "./useTexts";

export interface Options {
  splitsLines: boolean;
  wantsGates: boolean;
  streams: boolean;
  hasPair: boolean;
}

/** The form of one task: what it shows, and the request that it means; null while something is missing. Until the
    visitor chooses a task and writes an input, they are the first adapter and an example of it. */
export function useOneTask() {
  const [search] = useSearchParams();
  const asked = search.get("task");
  const adapters = useQuery({ ...adapterSearch("", 1), enabled: asked === null });
  const reference = asked ?? adapters.data?.adapters[0]?.name ?? "";
  const task = useQuery(taskOf(reference));
  const info = useQuery(serverInfo());
  const { typed } = useTexts();
  const golden = useGolden(reference, task.data?.version);
  const [options, setOptions] = useState<Options>({
    splitsLines: false,
    wantsGates: true,
    streams: true,
    hasPair: false,
  });
  const [values, setValues] = useState<ParameterValues>({});

  // The task of another tenant is not known: the visitor says whether it has a second text.
  const shape = task.data ?? { type: "", inputs: options.hasPair ? ("pair" as const) : ("single" as const) };
  const { type } = shape;
  const fields = parameterFields(type, info.data?.backbone.num_decoder_layers != null);
  const given = toParameters(values, fields);
  const canStream = type === "text2text" || given.answer === "generate";
  const offers: Record<keyof Options, boolean> = {
    splitsLines: shape.inputs === "single" && !canStream && type !== "embedding" && type !== "",
    hasPair: reference !== "" && task.data === null,
    streams: canStream,
    wantsGates: !canStream && (task.data?.preset.startsWith("unipelt") ?? false),
  };
  const form = inputForm(shape, type === "embedding" || (offers.splitsLines && options.splitsLines));
  const texts = typed ?? exampleTexts(form, golden);
  const hasExample = typed === null && texts.length > 0;
  const parameters = { ...given, ...(offers.wantsGates && options.wantsGates && { return_gates: true }) };
  const inputs = inputsOf(form, texts);
  const [first] = inputs;
  const isStream = offers.streams && options.streams && inputs.length === 1;
  let ask: (Ask & { kind: "one" | "stream" }) | null = null;
  // Whether an answer has gates or is a stream depends on the task.
  if (reference !== "" && first !== undefined && task.isSuccess) {
    ask = isStream
      ? { kind: "stream", task: reference, input: first, parameters }
      : { kind: "one", task: reference, inputs, parameters };
  }
  const parts = { form, texts, hasExample, fields, offers, options, setOptions, values, setValues };
  return { reference, task, type, ask, ...parts };
}

/** The golden examples of a version; none of another tenant's, which are not told. */
function useGolden(reference: string, version: number | undefined) {
  const { name } = splitReference(reference);
  const manifest = useQuery({ ...manifestQuery(name, version ?? 0), enabled: version !== undefined });
  return version !== undefined && manifest.data ? goldenOf(manifest.data.manifest) : [];
}
