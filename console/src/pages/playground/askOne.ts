// Asks one task and shows a streamed text while it arrives.
import { type Answered, type Ask, predict, streamText } from "@/api/predictions";
import type { Piece } from "./tokenTimes";

export interface Shown {
  ask: Ask & { kind: "one" | "stream" };
  /** The kind of the task; empty if it is not known. */
  type: string;
  pieces?: readonly Piece[];
  /** Absent while a text is streamed. */
  answered?: Answered;
}

export async function askOne(
  ask: Shown["ask"],
  type: string,
  signal: AbortSignal,
  show: (shown: Shown) => void,
): Promise<Shown> {
  if (ask.kind === "one") return { ask, type, answered: await predict(ask, signal) };
  const begun = performance.now();
  let pieces: readonly Piece[] = [];
  const onPiece = (text: string) => {
    pieces = [...pieces, { place: pieces.length, text, atMs: performance.now() - begun }];
    show({ ask, type, pieces });
  };
  const answered = await streamText(ask, onPiece, signal);
  return { ask, type, pieces, answered };
}
