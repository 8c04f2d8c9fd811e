// The reasons for which an artifact is refused, each at the tensor or the field that it names.

export interface Place {
  kind: "tensor" | "field" | "part" | "golden" | "file";
  /** The tensor, the field of the manifest as a path with dots, the kind of the part, or the golden example's number. */
  name: string;
  reasons: string[];
}

type Where = Pick<Place, "kind" | "name">;

/** What the server says of the manifest's fields together. */
const TOGETHER = "manifest as a whole: ";
const KINDS = "bottleneck|lora|prefix|central_gate|prompt|bias|norm|scale|head";
const RULES: readonly [RegExp, (found: string[]) => Where][] = [
  [/^tensor (['"])(.+?)\1/, ([, , name = ""]) => ({ kind: "tensor", name })],
  [/^golden example (\d+)/, ([, number = ""]) => ({ kind: "golden", name: number })],
  [/^manifest golden\.(\d+)/, ([, number = ""]) => ({ kind: "golden", name: number })],
  [/^(?:the )?golden /, () => ({ kind: "field", name: "golden" })],
  [/^manifest (.+?)(?: is |: )/, ([, path = ""]) => ({ kind: "field", name: path })],
  [/^task label (\d+) /, ([, number = ""]) => ({ kind: "field", name: `task.labels.${number}` })],
  [/^task targets? /, () => ({ kind: "field", name: "task.labels" })],
  [/^(backbone|task) (\w+) is /, ([, group = "", name = ""]) => ({ kind: "field", name: `${group}.${name}` })],
  [/^preset is /, () => ({ kind: "field", name: "preset" })],
  [new RegExp(`^(?:part '|the |a )?(${KINDS})\\b`), ([, kind = ""]) => ({ kind: "part", name: kind })],
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

function placeOf(reason: string): Where {
  const isOfManifest = reason.startsWith(TOGETHER);
  const said = isOfManifest ? reason.slice(TOGETHER.length) : reason;
  for (const [pattern, place] of RULES) {
    const found = pattern.exec(said);
    if (found) return place(found);
  }
  return isOfManifest ? { kind: "field", name: "as a whole" } : { kind: "file", name: "" };
}
