// Server-sent events of a route, read with the visitor's key: `EventSource` can send no header.
import { EventSourceParserStream } from "eventsource-parser/stream";
import { ApiError, errorFrom } from "./error";
import { fetchWithKey, ROOT } from "./server";

export interface ServerEvent {
  id: string;
  kind: string;
  data: string;
}

/** Reads what follows the event `lastId`. Returns whether there was a stream at all: there is none after the last event. */
type Connect = (lastId: string, signal: AbortSignal) => Promise<ReadableStream<Uint8Array<ArrayBuffer>> | null>;

interface Follower {
  onEvent: (event: ServerEvent) => void;
  /** Whether the stream is connected. A stream that ends without an error may have nothing more to say. */
  onConnected: (isConnected: boolean) => void;
}

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 15_000;

/** The stream of a path of the server. */
export function streamOf(path: string): Connect {
  return async (lastId, signal) => {
    const headers = { accept: "text/event-stream", ...(lastId && { "last-event-id": lastId }) };
    const response = await fetchWithKey(new Request(ROOT + path, { headers, signal }));
    return response.status === 204 ? null : response.body;
  };
}

/**
 * Follows a stream until the server says that nothing more comes, and connects again after any other end, with the id
 * of the last event. Rejects with an error that another attempt cannot change, such as a refused key.
 */
export async function follow(
  connect: Connect,
  lastId: string,
  { onEvent, onConnected }: Follower,
  signal: AbortSignal,
  pause: (ms: number) => Promise<void> = (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
): Promise<void> {
  let last = lastId;
  let wait = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      const stream = await connect(last, signal);
      if (!stream) return;
      onConnected(true);
      for await (const event of read(stream)) {
        if (event.id) last = event.id;
        onEvent(event);
        wait = FIRST_PAUSE_MS;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (isLasting(error)) throw error;
      onConnected(false);
    }
    if (signal.aborted) return;
    // Streams without an event follow each other.
    if (wait > FIRST_PAUSE_MS) onConnected(false);
    await pause(wait);
    wait = Math.min(2 * wait, MAX_PAUSE_MS);
  }
}

async function* read(stream: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<ServerEvent> {
  const events = stream.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream()).getReader();
  try {
    for (let next = await events.read(); !next.done; next = await events.read()) {
      const { id = "", event = "message", data } = next.value;
      if (event === "error") throw errorFrom(0, data, () => null);
      yield { id, kind: event, data };
    }
  } finally {
    void events.cancel().catch(() => undefined);
  }
}

/** A refusal of the request, other than one for a while. */
function isLasting(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
}
