// A request as a command or as code. The key is never part of it: it is read from PELTIER_API_KEY.
import { type Ask, type Parameters, requestOf } from "@/api/predictions";
import type { Input } from "@/rows/input";

export const LANGUAGES = ["curl", "Python", "JavaScript"] as const;
export type Language = (typeof LANGUAGES)[number];

export function snippet(language: Language, server: string, ask: Ask): string {
  if (language === "curl") return curl(server, ask);
  return language === "Python" ? python(server, ask) : javascript(server, ask);
}

function curl(server: string, ask: Ask): string {
  const { path, body } = requestOf(ask);
  return [
    `curl -s${ask.kind === "stream" ? "N" : ""} ${shellQuoted(server + path)}`,
    '-H "authorization: Bearer $PELTIER_API_KEY"',
    "-H 'content-type: application/json'",
    `-d ${shellQuoted(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function python(server: string, ask: Ask): string {
  const lines = PYTHON_CALLS[ask.kind](ask as never);
  return [
    "import os",
    "",
    "from peltier_client import Client",
    "",
    `with Client(${literal(server)}, api_key=os.environ.get("PELTIER_API_KEY")) as client:`,
    ...lines.map((line) => `    ${line}`),
    "",
  ].join("\n");
}

const PYTHON_CALLS: { [Kind in Ask["kind"]]: (ask: Ask & { kind: Kind }) => string[] } = {
  one: ({ task, inputs, parameters }) => [
    `inputs = [${inputs.map(pythonInput).join(", ")}]`,
    `for prediction in client.predict(${literal(task)}, inputs${keywords(parameters)}):`,
    "    print(prediction.model_dump(exclude_none=True))",
  ],
  stream: ({ task, input, parameters }) => [
    `for piece in client.stream(${literal(task)}, ${pythonInput(input)}${keywords(parameters)}):`,
    '    print(piece, end="", flush=True)',
  ],
  tasks: ({ tasks, input, parameters }) => [
    `answers = client.predict_tasks(${literal(tasks)}, ${pythonInput(input)}${keywords(parameters)})`,
    "for task, answer in answers.items():",
    "    print(task, answer if isinstance(answer, Exception) else answer[0].model_dump(exclude_none=True))",
  ],
  mixed: ({ items, parameters }) => [
    "items = [",
    ...items.map(({ task, input }) => `    (${literal(task)}, ${pythonInput(input)}),`),
    "]",
    `for answer in client.predict_many(items${keywords(parameters)}):`,
    "    print(answer if isinstance(answer, Exception) else answer[0].model_dump(exclude_none=True))",
  ],
};

function pythonInput(input: Input): string {
  return typeof input === "string" ? literal(input) : `(${input.map(literal).join(", ")})`;
}

function keywords(parameters: Parameters): string {
  return Object.entries(parameters)
    .map(([name, value]) => `, ${name}=${literal(value)}`)
    .join("");
}

/** JSON's texts, numbers and lists are Python's too. */
function literal(value: unknown): string {
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return value === null || value === undefined ? "None" : JSON.stringify(value);
}

function javascript(server: string, ask: Ask): string {
  const { path, body } = requestOf(ask);
  const read =
    ask.kind === "stream"
      ? [
          "for await (const events of response.body.pipeThrough(new TextDecoderStream())) {",
          "  process.stdout.write(events);",
          "}",
        ]
      : ["console.log(await response.json());"];
  return [
    `const response = await fetch(${JSON.stringify(server + path)}, {`,
    '  method: "POST",',
    "  headers: {",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the template is part of the code that is shown.
    "    authorization: `Bearer ${process.env.PELTIER_API_KEY}`,",
    '    "content-type": "application/json",',
    "  },",
    `  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),`,
    "});",
    "if (!response.ok) throw new Error(await response.text());",
    ...read,
    "",
  ].join("\n");
}
