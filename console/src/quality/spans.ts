// SQuAD's metrics of answers to questions.

export interface SpanScore {
  exact: number;
  f1: number;
}

/** Exact match and F1 of the words, with the best of the right answers; the empty text is no answer. */
export function scoreSpan(found: string, gold: readonly string[]): SpanScore {
  const own = wordsOf(found);
  const scores = (gold.length ? gold : [""]).map(wordsOf).map((wanted) => ({
    exact: Number(own.join(" ") === wanted.join(" ")),
    f1: f1(own, wanted),
  }));
  return { exact: Math.max(...scores.map((one) => one.exact)), f1: Math.max(...scores.map((one) => one.f1)) };
}

/** In lower case, without punctuation and articles. */
function wordsOf(text: string): string[] {
  const plain = text.toLowerCase().replace(/[!-/:-@[-`{-~]/g, "");
  return plain
    .replace(/(?<![\p{L}\p{N}_])(a|an|the)(?![\p{L}\p{N}_])/gu, " ")
    .split(/\s+/)
    .filter(Boolean);
}

function f1(found: readonly string[], wanted: readonly string[]): number {
  if (!found.length || !wanted.length) return Number(found.length === wanted.length);
  const left = [...wanted];
  let shared = 0;
  for (const word of found) {
    const place = left.indexOf(word);
    if (place < 0) continue;
    left.splice(place, 1);
    shared += 1;
  }
  return (2 * shared) / (found.length + wanted.length);
}
