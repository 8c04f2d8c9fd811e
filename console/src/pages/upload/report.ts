// The reasons for which an artifact is refused, each at the tensor or the field that it names.

export interface Place {
  kind: "tensor" | "field" | "golden" | "file";
  /** The tensor, the field of the manifest as a path with dots, or the number of the golden example. */
  name: string;
  reasons: string[];
}

const RULES: readonly [RegExp, (found: string[]) => Pick<Place, "kind" | "name">][] = [
  [/^tensor (['"])(.+?)\1/, ([, , name = ""]) => ({ kind: "tensor", name })],
  [/^golden example (\d+)/, ([, number = ""]) => ({ kind: "golden", name: number })],
  [/^manifest golden\.(\d+)/, ([, number = ""]) => ({ kind: "golden", name: number })],
  [/^manifest (.+?)(?: is |: )/, ([, path = ""]) => ({ kind: "field", name: path })],
  [/^(backbone|task) (\w+) is /, ([, group = "", name = ""]) => ({ kind: "field", name: `${group}.${name}` })],
  [
    /^(?:part ')?(bottleneck|lora|prefix|central_gate|prompt|bias|norm|head)\b/,
    ([, kind = ""]) => ({
      kind: "field",
      name: `parts: ${kind}`,
    }),
  ],
];

/** In the order of the reasons; those at the same place are together. */
export function placesOf(reasons: readonly string[]): Place[] {
  const places = new Map<string, Place>();
  for (const reason of reasons) {
    const { kind, name } = placeOf(reason);
    const key = `${kind} ${name}`;
    const place = places.get(key) ?? { kind, name, reasons: [] };
    place.reasons.push(reason);
    places.set(key, place);
  }
  return [...places.values()];
}

function placeOf(reason: string): Pick<Place, "kind" | "name"> {
  for (const [pattern, place] of RULES) {
    const found = pattern.exec(reason);
    if (found) return place(found);
  }
  return { kind: "file", name: "" };
}
