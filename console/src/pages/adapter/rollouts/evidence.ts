// The sequential tests of a rollout.

/** In the order in which the server asks them. */
export const TESTS = [
  { id: "accuracy", says: "Less accurate", decision: "roll back" },
  { id: "errors", says: "Fails more often", decision: "roll back" },
  { id: "promotion", says: "As accurate or better", decision: "promote" },
] as const;

/** How far the evidence is on its way from 1 to what is needed, from 0 to 1. Evidence multiplies, so its logarithm
 * grows evenly. */
export function progressOf(evidence: number, needed: number): number {
  return needed > 1 ? Math.min(1, Math.max(0, Math.log(evidence) / Math.log(needed))) : 0;
}
