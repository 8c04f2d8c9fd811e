// Which columns of a table are the texts of an input, and which is the label.

export interface Columns {
  texts: readonly string[];
  label: string;
}

const LABELS = ["label", "labels", "answers", "entities", "score", "relevance", "target", "tags"];
const TEXTS: readonly (readonly string[])[] = [
  ["text", "question", "query", "premise", "sentence1", "sentence", "input", "first"],
  ["pair", "context", "document", "hypothesis", "sentence2", "second"],
  ["third"],
];

/** What the names suggest for an input of `count` texts; the columns in their order otherwise. */
export function guessColumns(columns: readonly string[], count: number): Columns {
  const label = LABELS.find((name) => columns.includes(name)) ?? columns.at(-1) ?? "";
  const others = columns.filter((name) => name !== label);
  const texts: string[] = [];
  for (let place = 0; place < count; place++) {
    const left = others.filter((name) => !texts.includes(name));
    texts.push(TEXTS[place]?.find((name) => left.includes(name)) ?? left[0] ?? "");
  }
  return { texts, label };
}
