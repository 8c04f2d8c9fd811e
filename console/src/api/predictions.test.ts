import { beforeAll, expect, test, vi } from "vitest";
import type { requestOf as Of, readEvents as Read } from "./predictions";

let readEvents: typeof Read;
let requestOf: typeof Of;

beforeAll(async () => {
  vi.stubGlobal("sessionStorage", { getItem: () => null });
  vi.stubGlobal("document", { baseURI: "http://server/console/" });
  ({ readEvents, requestOf } = await import("./predictions"));
});

test("pieces are read across the borders of chunks and of characters", async () => {
  const pieces: string[] = [];
  const whole = { task: "e2e", predictions: [{ text: "Zürich 😀" }] };
  const events = ['{"index":0,"text":"Zü"}', '{"index":0,"text":"rich 😀"}', JSON.stringify(whole), "[DONE]"];
  const found = await readEvents(chunks(events.map((data) => `data: ${data}\n\n`).join(""), 3), (text) => {
    pieces.push(text);
  });
  expect(pieces).toEqual(["Zü", "rich 😀"]);
  expect(found).toEqual(whole);
});

test("an error event rejects with the server's sentence, and so does an end without an answer", async () => {
  const error = 'event: error\ndata: {"error": {"code": "deadline_passed", "message": "too late"}}\n\n';
  await expect(readEvents(chunks(error, 50), () => undefined)).rejects.toMatchObject({
    code: "deadline_passed",
    message: "Too late.",
  });
  await expect(readEvents(chunks('data: {"index":0,"text":"a"}\n\n', 50), () => undefined)).rejects.toThrow(
    "ended before its last event",
  );
});

test("an ask becomes the body of its route, without parameters that are not given", () => {
  expect(requestOf({ kind: "one", task: "a@2", inputs: ["x"], parameters: {} })).toEqual({
    path: "/v1/tasks/a%402/predict",
    body: { inputs: ["x"] },
  });
  expect(requestOf({ kind: "stream", task: "a", input: ["x", "y"], parameters: { seed: 1 } }).body).toEqual({
    inputs: [["x", "y"]],
    parameters: { seed: 1 },
    stream: true,
  });
  expect(requestOf({ kind: "tasks", tasks: ["a", "b*"], input: "x", parameters: {} }).body).toEqual({
    tasks: ["a", "b*"],
    input: "x",
  });
  expect(requestOf({ kind: "mixed", items: [{ task: "a", input: "x" }], parameters: { top_k: 1 } }).body).toEqual({
    requests: [{ task: "a", input: "x", parameters: { top_k: 1 } }],
  });
});

function chunks(text: string, size: number): ReadableStream<Uint8Array<ArrayBuffer>> {
  const bytes = new TextEncoder().encode(text);
  return new ReadableStream({
    start(controller) {
      for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
      controller.close();
    },
  });
}
