import type { Header } from "./header";
import type { Place } from "./report";

const MAX_CHARS = 120;

/** What the file has at a place, as text. */
export function valueAt({ manifest, tensors }: Header, { kind, name }: Place): string {
  switch (kind) {
    case "tensor":
      return tensors.find((tensor) => tensor.name === name)?.shape ?? "absent";
    case "field":
      return shown(field(manifest, name.split(".")));
    case "golden":
      return shown(field(manifest, ["golden", name, "input"]));
    case "file":
      return "–";
  }
}

function field(value: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (found, key) => (typeof found === "object" && found !== null ? (found as Record<string, unknown>)[key] : undefined),
    value,
  );
}

function shown(value: unknown): string {
  const text = value === undefined ? "–" : JSON.stringify(value);
  return text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text;
}
