// Sends the rows of a batch, in requests that the server takes.
import { type Item, predictMixed, type Result } from "@/api/predictions";

/** Rows of one request; fewer than the server's `max_inputs`, so that first results are seen soon. */
const ROWS_OF_A_REQUEST = 256;

/** One result for each item, in order. Calls `onProgress` with those that have arrived. */
export async function askBatch(
  items: readonly Item[],
  maxInputs: number,
  onProgress: (results: readonly Result[]) => void,
  signal: AbortSignal,
): Promise<readonly Result[]> {
  const size = Math.min(ROWS_OF_A_REQUEST, maxInputs);
  let results: Result[] = [];
  for (let from = 0; from < items.length; from += size) {
    const ask = { kind: "mixed", items: items.slice(from, from + size), parameters: {} } as const;
    const body = await predictMixed(ask, signal);
    results = [...results, ...body.results];
    onProgress(results);
  }
  return results;
}
