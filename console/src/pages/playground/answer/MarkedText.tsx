import { useMemo } from "react";
import { type Mark, segments } from "../marks";
import styles from "./MarkedText.module.css";

interface Props {
  text: string;
  marks: readonly Mark[];
  /** Where the server stopped reading, in code points. */
  readUntil?: number | null;
}

const NUM_COLORS = 8;

/** A text with its marked parts. Each label has a colour of its own, and its name beside the part. */
export function MarkedText({ text, marks, readUntil }: Props) {
  const colors = useMemo(() => colorsOf(marks), [marks]);
  return (
    <div>
      <p className={styles.text}>
        {segments(text, marks).map(({ start, text: part, mark }) =>
          mark ? (
            <mark
              key={start}
              className={styles.mark}
              style={{ borderColor: colors.get(mark.label) }}
              title={`${mark.label}, ${mark.score.toFixed(4)}, characters ${mark.start} to ${mark.end}`}
            >
              {part}
              <span className={styles.label} style={{ color: colors.get(mark.label) }}>
                {mark.label} {mark.score.toFixed(2)}
              </span>
            </mark>
          ) : (
            <span key={start}>{part}</span>
          ),
        )}
      </p>
      {readUntil != null && (
        <p className={styles.note}>The text was too long for the task: it was read up to character {readUntil}.</p>
      )}
    </div>
  );
}

function colorsOf(marks: readonly Mark[]): Map<string, string> {
  const labels = [...new Set(marks.map(({ label }) => label))].sort();
  return new Map(labels.map((label, place) => [label, `var(--series-${(place % NUM_COLORS) + 1})`]));
}
