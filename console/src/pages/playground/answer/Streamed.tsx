import { counted, significant } from "@/widgets/format/numbers";
import { type Piece, tokenTimes } from "../tokenTimes";
import styles from "./Streamed.module.css";

interface Props {
  pieces: readonly Piece[];
  isRunning: boolean;
}

const MAX_BAR = 44;

/** A text as it arrives. Below, the time before each piece; a piece is a token, or the tokens of one character. */
export function Streamed({ pieces, isRunning }: Props) {
  const times = tokenTimes(pieces);
  const waits = pieces.map(({ place, text, atMs }) => ({ place, text, ms: atMs - (pieces[place - 1]?.atMs ?? 0) }));
  const longest = Math.max(1, ...waits.slice(waits.length > 1 ? 1 : 0).map(({ ms }) => ms));
  return (
    <div className={styles.streamed}>
      <p className={styles.text} aria-live="polite" aria-busy={isRunning}>
        {pieces.map(({ place, text, atMs }) => (
          <span key={place} className={styles.piece} title={`after ${atMs.toFixed(1)} ms`}>
            {text}
          </span>
        ))}
        {isRunning && <span className={styles.caret} aria-hidden="true" />}
      </p>
      {times && (
        <>
          <p className={styles.facts}>
            First piece after {significant(times.firstMs)} ms, {counted(pieces.length, "piece")} in{" "}
            {significant(times.lastMs)} ms
            {times.gapsMs.length > 0 &&
              `, ${significant(times.medianGapMs)} ms between two (median), ${significant(times.piecesPerSecond)} each second`}
            .
          </p>
          <ol className={styles.times} aria-label="The time before each piece">
            {waits.map(({ place, text, ms }) => (
              <li key={place} title={`${JSON.stringify(text)}: ${ms.toFixed(1)} ms`}>
                <span className={styles.ms}>{ms.toFixed(0)}</span>
                <span
                  className={place === 0 ? styles.firstBar : styles.bar}
                  style={{ height: Math.max(2, Math.min(1, ms / longest) * MAX_BAR) }}
                  aria-hidden="true"
                />
                <span className={styles.token}>{text.trim() || "␣"}</span>
              </li>
            ))}
          </ol>
        </>
      )}
    </div>
  );
}
