// Golden examples: inputs with the outputs that an artifact's maker recorded.
import type { Input } from "@/rows/input";

export interface Golden {
  input: Input;
  output: readonly number[];
  text: string | null;
}

/** Those of a manifest. */
export function goldenOf(manifest: Record<string, unknown>): Golden[] {
  return (Array.isArray(manifest.golden) ? manifest.golden : []) as Golden[];
}
