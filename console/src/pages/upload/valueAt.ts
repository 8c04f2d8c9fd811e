import type { Header } from "./header";
import type { Place } from "./report";

const MAX_CHARS = 120;

/** What the file has at a place, as text. */
export function valueAt({ manifest, tensors }: Header, { kind, name }: Place): string {
  switch (kind) {
    case "tensor":
      return tensors.find((tensor) => tensor.name === name)?.shape ?? "absent";
    case "part":
      return shown(partOf(manifest, name));
    case "field":
      return shown(field(manifest, name.split(".")));
    case "golden":
      return shown(field(manifest, ["golden", name, "input"]));
    case "file":
      return "–";
  }
}

function field(value: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>(member, value);
}

/** The kind of a part or of a map is not a member: the server names it to say which form it read. */
function member(value: unknown, key: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  const members = value as Record<string, unknown>;
  return !(key in members) && members.kind === key ? value : members[key];
}

function partOf(manifest: Header["manifest"], kind: string): unknown {
  return Array.isArray(manifest.parts) ? manifest.parts.find((part) => part?.kind === kind) : undefined;
}

function shown(value: unknown): string {
  const text = value === undefined ? "–" : JSON.stringify(value);
  return text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text;
}
