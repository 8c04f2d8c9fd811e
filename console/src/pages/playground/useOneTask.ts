import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "wouter";
import { serverInfo } from "@/api/info";
import type { Ask } from "@/api/predictions";
import { taskOf } from "@/api/tasks";
import { inputForm, inputsOf } from "./form/inputForm";
import { type ParameterValues, parameterFields, toParameters } from "./form/parameters";
import { useTexts } from "./useTexts";

export interface Options {
  splitsLines: boolean;
  wantsGates: boolean;
  streams: boolean;
  hasPair: boolean;
}

/** The form of one task: what it shows, and the request that it means; null while something is missing. */
export function useOneTask() {
  const [search] = useSearchParams();
  const reference = search.get("task") ?? "";
  const task = useQuery(taskOf(reference));
  const info = useQuery(serverInfo());
  const { texts } = useTexts();
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
  const parameters = { ...given, ...(offers.wantsGates && options.wantsGates && { return_gates: true }) };
  const inputs = inputsOf(form, texts);
  const [first] = inputs;
  const isStream = offers.streams && options.streams && inputs.length === 1;
  let ask: (Ask & { kind: "one" | "stream" }) | null = null;
  if (reference !== "" && first !== undefined && !task.isError) {
    ask = isStream
      ? { kind: "stream", task: reference, input: first, parameters }
      : { kind: "one", task: reference, inputs, parameters };
  }
  return { reference, task, type, form, fields, offers, options, setOptions, values, setValues, ask };
}
