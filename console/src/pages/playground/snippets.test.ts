import { beforeAll, expect, test, vi } from "vitest";
import type { Ask } from "@/api/predictions";
import type { snippet as Snippet } from "./snippets";

let snippet: typeof Snippet;
const SERVER = "http://127.0.0.1:8000";
const ASKS: readonly Ask[] = [
  { kind: "one", task: "nli@2", inputs: [["it's", 'a "pair"']], parameters: { top_k: 2, raw_scores: true } },
  { kind: "stream", task: "e2e", input: "name[Zürich]", parameters: { temperature: 0.7 } },
  { kind: "tasks", tasks: ["a", "triage.*"], input: "I lost my card", parameters: {} },
  {
    kind: "mixed",
    items: [
      { task: "a", input: "x" },
      { task: "b", input: ["y", "z"] },
    ],
    parameters: {},
  },
];

beforeAll(async () => {
  vi.stubGlobal("sessionStorage", { getItem: () => "plt_secret" });
  vi.stubGlobal("document", { baseURI: "http://server/console/" });
  ({ snippet } = await import("./snippets"));
});

test("no snippet has the key; each names the variable", () => {
  for (const ask of ASKS) {
    for (const language of ["curl", "Python", "JavaScript"] as const) {
      expect(snippet(language, SERVER, ask)).toContain("PELTIER_API_KEY");
      expect(snippet(language, SERVER, ask)).not.toContain("plt_");
    }
  }
});

test("curl quotes what the shell would read", () => {
  const [ask] = ASKS as [Ask];
  expect(snippet("curl", SERVER, ask)).toBe(
    [
      "curl -s 'http://127.0.0.1:8000/v1/tasks/nli%402/predict' \\",
      '  -H "authorization: Bearer $PELTIER_API_KEY" \\',
      "  -H 'content-type: application/json' \\",
      `  -d '{"inputs":[["it'\\''s","a \\"pair\\""]],"parameters":{"top_k":2,"raw_scores":true}}'`,
    ].join("\n"),
  );
});

test("Python calls the client with tuples, keywords and Python's own names", () => {
  const [one, stream, tasks, mixed] = ASKS.map((ask) => snippet("Python", SERVER, ask));
  expect(one).toContain('    inputs = [("it\'s", "a \\"pair\\"")]');
  expect(one).toContain('client.predict("nli@2", inputs, top_k=2, raw_scores=True)');
  expect(stream).toContain('client.stream("e2e", "name[Zürich]", temperature=0.7)');
  expect(tasks).toContain('client.predict_tasks(["a", "triage.*"], "I lost my card")');
  expect(mixed).toContain('        ("b", ("y", "z")),');
});
