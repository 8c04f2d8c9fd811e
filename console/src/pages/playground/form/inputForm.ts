// The fields of an input, by the kind of its task, and the inputs that they mean.
import type { Input } from "@/rows/input";

export interface InputForm {
  /** The labels of the fields, in order. */
  fields: readonly { label: string; hint?: string; rows: number; placeholder: string }[];
  /** The field of which every line is a text of its own; -1 for none. */
  lines: number;
}

interface Shape {
  type: string;
  inputs: "single" | "pair" | "triple";
}

const TEXT = { label: "Text", rows: 5, placeholder: "I am still waiting on my card?" };

export function inputForm({ type, inputs }: Shape, splitsLines: boolean): InputForm {
  if (type === "ranking") {
    const documents = { label: "Documents", hint: "One in each line.", rows: 8, placeholder: "" };
    return { fields: [{ label: "Query", rows: 2, placeholder: "" }, documents], lines: 1 };
  }
  if (type === "span") {
    const context = { label: "Context", hint: "The answer is a part of it.", rows: 9, placeholder: "" };
    return { fields: [{ label: "Question", rows: 2, placeholder: "" }, context], lines: -1 };
  }
  if (inputs === "single") {
    const hint = splitsLines ? "One text in each line." : undefined;
    return { fields: [{ ...TEXT, hint, rows: splitsLines ? 8 : 5 }], lines: splitsLines ? 0 : -1 };
  }
  const names = ["First text", "Second text", "Third text"].slice(0, inputs === "pair" ? 2 : 3);
  return { fields: names.map((label) => ({ label, rows: 4, placeholder: "" })), lines: -1 };
}

/** The inputs of the filled fields. Without any text there are none. */
export function inputsOf({ fields, lines }: InputForm, texts: readonly string[]): Input[] {
  const given = fields.map((_, place) => texts[place] ?? "");
  if (given.some((text) => !text.trim())) return [];
  if (lines < 0) return [together(given)];
  const own = (given[lines] ?? "").split("\n").filter((line) => line.trim());
  return own.map((line) => together(given.map((text, place) => (place === lines ? line : text))));
}

function together([first = "", second, third]: readonly string[]): Input {
  if (second === undefined) return first;
  return third === undefined ? [first, second] : [first, second, third];
}
