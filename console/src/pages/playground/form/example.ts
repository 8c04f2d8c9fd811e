// A golden example as the texts of a form.
import type { Golden } from "@/api/golden";
import { textsOf } from "@/rows/input";
import type { InputForm } from "./inputForm";

const MAX_LINES = 3;

/** The first example. Where every line of a field is a text of its own, up to three examples that share the others. */
export function exampleTexts({ fields, lines }: InputForm, golden: readonly Golden[]): string[] {
  const inputs = golden.map(({ input }) => textsOf(input)).filter((texts) => texts.length === fields.length);
  const [first] = inputs;
  if (!first) return [];
  if (lines < 0) return [...first];
  const alike = inputs.filter((texts) => texts.every((text, place) => place === lines || text === first[place]));
  const own = new Set(alike.map((texts) => (texts[lines] ?? "").replaceAll(/\s*\n\s*/g, " ")));
  return first.map((text, place) => (place === lines ? [...own].slice(0, MAX_LINES).join("\n") : text));
}
