// How good the answers of two versions are, as the server judges them.
import { answer, api, type Schema } from "./server";

export type ComparisonRequest = Schema<"ComparisonRequest">;
export type Comparison = Schema<"ComparisonResponse">;
/** The types of tasks whose answers can be judged. */
export type Kind = ComparisonRequest["task_type"];
/** What a prediction of any type answers. */
export type Answer = Schema<"ComparedAnswers">["answers"][number];

/** The most rows that the server judges at once. */
export const MAX_COMPARED_ROWS = 10_000;

/** Nothing is predicted: the request has the answers. */
export function compareAnswers(body: ComparisonRequest, signal?: AbortSignal): Promise<Comparison> {
  return answer(api.POST("/v1/compare", { body, signal })) as Promise<Comparison>;
}
