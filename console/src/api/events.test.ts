import { beforeAll, expect, test, vi } from "vitest";
import { ApiError } from "./error";
import type { follow as Follow, ServerEvent } from "./events";

let follow: typeof Follow;

beforeAll(async () => {
  vi.stubGlobal("sessionStorage", { getItem: () => null });
  vi.stubGlobal("document", { baseURI: "http://server/console/" });
  ({ follow } = await import("./events"));
});

/** Follows streams with these texts, one after the other; null is the end, an error a refusal. */
function followed(answers: (string | null | Error)[]) {
  const events: ServerEvent[] = [];
  const asked: string[] = [];
  const connections: boolean[] = [];
  const pauses: number[] = [];
  const connect = async (lastId: string) => {
    asked.push(lastId);
    const answer = answers.shift() ?? null;
    if (answer instanceof Error) throw answer;
    return answer === null ? null : (new Response(answer).body as ReadableStream<Uint8Array<ArrayBuffer>>);
  };
  const follower = {
    onEvent: (event: ServerEvent) => events.push(event),
    onConnected: (is: boolean) => connections.push(is),
  };
  const end = follow(connect, "", follower, new AbortController().signal, async (ms) => void pauses.push(ms));
  return { end, events, asked, connections, pauses };
}

test("a stream that ends goes on after its last event and counts as connected", async () => {
  const { end, events, asked, connections } = followed([
    'id: 1\nevent: state\ndata: {"a": 1}\n\n: nothing new\n\n',
    "id: 2\nevent: progress\ndata: {}\n\n",
    null,
  ]);
  await end;
  expect(events).toEqual([
    { id: "1", kind: "state", data: '{"a": 1}' },
    { id: "2", kind: "progress", data: "{}" },
  ]);
  expect(asked).toEqual(["", "1", "2"]);
  expect(connections).toEqual([true, true]);
});

test("streams without an event are a lost connection", async () => {
  const { end, connections } = followed(["", "", null]);
  await end;
  expect(connections).toEqual([true, true, false]);
});

test("pauses grow while the server does not answer", async () => {
  const lost = new ApiError("The server does not answer.", 0, "no_answer");
  const { end, pauses, connections } = followed([lost, new ApiError("Full.", 503, "queue_full"), lost, null]);
  await end;
  expect(pauses).toEqual([1000, 2000, 4000]);
  expect(connections.every((isConnected) => !isConnected)).toBe(true);
});

test("an error in the stream connects again, a refusal does not", async () => {
  const refusal = new ApiError("There is no such training.", 404, "training_not_found");
  const broken = 'id: 7\nevent: state\ndata: {}\n\nevent: error\ndata: {"error": {"message": "no"}}\n\n';
  const { end, asked, connections } = followed([broken, refusal]);
  await expect(end).rejects.toBe(refusal);
  expect(asked).toEqual(["", "7"]);
  expect(connections).toEqual([true, false]);
});
