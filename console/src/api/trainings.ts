// Trainings on the server: queries, what can be done with them, and their events.
import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { follow, streamOf } from "./events";
import { answer, api, type Schema } from "./server";

export type Training = Schema<"Training">;
/** A training in a list, without its request. */
export type TrainingSummary = Schema<"TrainingSummary">;
export type TrainingStatus = Training["status"];
export type TrainingRequest = Omit<Schema<"TrainingRequest">, "keep_examples" | "owns_files" | "format">;
type FileRequest = TrainingRequest & Pick<Schema<"TrainingRequest">, "owns_files">;

/** Something that happened to a training; the document of the API has no bodies of events. */
export interface TrainingEvent {
  id: number;
  /** ISO 8601. */
  at: string;
  kind: "state" | "preflight" | "progress" | "checkpoint" | "message";
  message: string;
  data: Readonly<Record<string, unknown>>;
}

const PAGE_ROWS = 100;
const BUSY_MS = 2_000;
const LIST_MS = 5_000;
const ENDED: readonly TrainingStatus[] = ["succeeded", "failed", "cancelled"];

/** Whether nothing more happens to it by itself. */
export function hasEnded({ status }: TrainingSummary): boolean {
  return ENDED.includes(status);
}

/** The tenant's trainings, newest first, page by page; with a status only those. Asked again while one is not over. */
export function trainingPages(status: TrainingStatus | null) {
  return infiniteQueryOptions({
    queryKey: ["trainings", "pages", status],
    queryFn: ({ pageParam: cursor, signal }) => {
      const query = { cursor, limit: PAGE_ROWS, ...(status && { status: [status] }) };
      return answer(api.GET("/v1/trainings", { params: { query }, signal }));
    },
    initialPageParam: "",
    getNextPageParam: ({ next_cursor }) => next_cursor ?? undefined,
    placeholderData: keepPreviousData,
    refetchInterval: LIST_MS,
  });
}

/** One training, asked again while something happens to it. */
export function trainingQuery(id: string) {
  return queryOptions({
    queryKey: ["trainings", "one", id],
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/trainings/{training_id}", { params: { path: { training_id: id } }, signal })),
    refetchInterval: ({ state: { data, error } }) => (error || !data || hasEnded(data) ? false : BUSY_MS),
  });
}

/** Begins a training; a file is uploaded first, and deleted with the training or if the server refuses it. */
export async function beginTraining(request: TrainingRequest, file: File | null): Promise<Training> {
  if (!file) return create(request);
  const { id } = await uploadExamples(file);
  try {
    return await create({ ...request, file_id: id, owns_files: true });
  } catch (refusal) {
    const path = { file_id: id };
    await answer(api.DELETE("/v1/files/{file_id}", { params: { path } })).catch(() => undefined);
    throw refusal;
  }
}

function create(request: TrainingRequest | FileRequest): Promise<Training> {
  return answer(api.POST("/v1/trainings", { body: request as Schema<"TrainingRequest"> }));
}

function uploadExamples(file: File): Promise<Schema<"File">> {
  const form = new FormData();
  form.append("file", file);
  form.append("purpose", "fine-tune");
  return answer(
    api.POST("/v1/files", {
      body: form as unknown as Schema<"FileForm">,
      bodySerializer: (body) => body as unknown as FormData,
    }),
  );
}

const of = (id: string) => ({ params: { path: { training_id: id } } });

export const pauseTraining = (id: string) => answer(api.POST("/v1/trainings/{training_id}/pause", of(id)));
export const resumeTraining = (id: string) => answer(api.POST("/v1/trainings/{training_id}/resume", of(id)));
export const cancelTraining = (id: string) => answer(api.POST("/v1/trainings/{training_id}/cancel", of(id)));
export const deleteTraining = (id: string) => answer(api.DELETE("/v1/trainings/{training_id}", of(id)));

/** Gives the events after `lastId`, and new ones until the training has ended. */
export function followTraining(
  id: string,
  lastId: number,
  onEvent: (event: TrainingEvent) => void,
  onConnected: (isConnected: boolean) => void,
  signal: AbortSignal,
): Promise<void> {
  const stream = streamOf(`/v1/trainings/${encodeURIComponent(id)}/events`);
  const follower = { onEvent: ({ data }: { data: string }) => onEvent(JSON.parse(data)), onConnected };
  return follow(stream, lastId ? String(lastId) : "", follower, signal);
}
