// The gates of an answer as a matrix.

export interface GateMatrix {
  /** The parts of the adapter. */
  parts: readonly string[];
  blocks: readonly string[];
  /** `values[part][block]`; null for a block without that part. */
  values: readonly (readonly (number | null)[])[];
}

/** Null if the adapter has no gates. */
export function gateMatrix(gates: Readonly<Record<string, (number | null)[]>> | null | undefined): GateMatrix | null {
  const parts = Object.keys(gates ?? {});
  if (!gates || !parts.length) return null;
  const count = Math.max(...parts.map((part) => gates[part]?.length ?? 0));
  return {
    parts,
    blocks: Array.from({ length: count }, (_, block) => String(block)),
    values: parts.map((part) => Array.from({ length: count }, (_, block) => gates[part]?.[block] ?? null)),
  };
}

/** The mean gate of each part over the blocks that have it. */
export function meanGates({ parts, values }: GateMatrix): { part: string; mean: number }[] {
  return parts.map((part, row) => {
    const own = (values[row] ?? []).filter((value) => value !== null);
    return { part, mean: own.reduce((total, value) => total + value, 0) / (own.length || 1) };
  });
}
