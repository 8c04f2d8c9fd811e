// Predictions: of one task, of several tasks, of a mixed batch, and a streamed text.
import { EventSourceParserStream } from "eventsource-parser/stream";
import type { Input } from "@/rows/input";
import { ApiError, errorFrom, sentence } from "./error";
import { answer, api, fetchWithKey, ROOT, type Schema } from "./server";

export type Answered = Schema<"PredictResponse">;
export type Prediction = Answered["predictions"][number];
export type Result = Answered | Schema<"ErrorBody">;
/** Those that are given; the others have the server's defaults. */
export type Parameters = Partial<Schema<"Parameters">>;

export interface Item {
  task: string;
  input: Input;
}

/** What one request asks. */
export type Ask =
  | { kind: "one"; task: string; inputs: readonly Input[]; parameters: Parameters }
  | { kind: "stream"; task: string; input: Input; parameters: Parameters }
  | { kind: "tasks"; tasks: readonly string[]; input: Input; parameters: Parameters }
  | { kind: "mixed"; items: readonly Item[]; parameters: Parameters };

/** Where an ask is sent, and its body. */
export function requestOf(ask: Ask): { path: string; body: Record<string, unknown> } {
  const parameters = Object.keys(ask.parameters).length ? { parameters: ask.parameters } : {};
  if (ask.kind === "tasks") return { path: "/v1/predict", body: { tasks: ask.tasks, input: ask.input, ...parameters } };
  if (ask.kind === "mixed") {
    return { path: "/v1/predict", body: { requests: ask.items.map((item) => ({ ...item, ...parameters })) } };
  }
  const path = `/v1/tasks/${encodeURIComponent(ask.task)}/predict`;
  if (ask.kind === "one") return { path, body: { inputs: ask.inputs, ...parameters } };
  const inputs = typeof ask.input === "string" ? ask.input : [ask.input];
  return { path, body: { inputs, ...parameters, stream: true } };
}

export function predict(ask: Ask & { kind: "one" }, signal?: AbortSignal): Promise<Answered> {
  const body = requestOf(ask).body as unknown as Schema<"PredictRequest">;
  return answer(
    api.POST("/v1/tasks/{task}/predict", { params: { path: { task: ask.task } }, body, signal }),
  ) as Promise<Answered>;
}

/** One result for each item, or for each task with the members of groups in their places, which `tasks` names. */
export function predictMixed(
  ask: Ask & { kind: "tasks" | "mixed" },
  signal?: AbortSignal,
): Promise<Schema<"MixedPredictResponse">> {
  const body = requestOf(ask).body as unknown as Schema<"MixedPredictRequest">;
  return answer(api.POST("/v1/predict", { body, signal })) as Promise<Schema<"MixedPredictResponse">>;
}

/** Calls `onPiece` with each piece of the text as it arrives. The whole answer follows the last piece. */
export async function streamText(
  ask: Ask & { kind: "stream" },
  onPiece: (text: string) => void,
  signal?: AbortSignal,
): Promise<Answered> {
  const { path, body } = requestOf(ask);
  const request = new Request(ROOT + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const response = await fetchWithKey(request);
  if (!response.body) throw new ApiError("The server sent no events.", response.status, "no_events");
  return readEvents(response.body, onPiece);
}

/** Reads the events of a streamed text. Rejects with the error that the server sent, or if the events end early. */
export async function readEvents(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  onPiece: (text: string) => void,
): Promise<Answered> {
  const events = stream.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream()).getReader();
  let whole: Answered | undefined;
  for (let read = await events.read(); !read.done; read = await events.read()) {
    const { event, data } = read.value;
    if (event === "error") throw errorFrom(200, data, () => null);
    if (data === "[DONE]") break;
    const body: Answered | { text: string } = JSON.parse(data);
    if ("predictions" in body) whole = body;
    else onPiece(body.text);
  }
  if (!whole) throw new ApiError("The answer ended before its last event.", 0, "incomplete");
  return whole;
}

/** The error of a result in a mixed answer, as the error of a request would be. */
export function errorOfResult({ error }: Schema<"ErrorBody">): ApiError {
  return new ApiError(sentence(error.message), 0, error.code, error.details ?? []);
}
