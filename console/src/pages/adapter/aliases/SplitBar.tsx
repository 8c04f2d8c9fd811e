import { Fragment, type KeyboardEvent, type PointerEvent, useRef } from "react";
import { percent } from "@/widgets/format/numbers";
import styles from "./SplitBar.module.css";
import { ALL_POINTS, endOf, moveBorder, type Share, STEP_POINTS } from "./shares";

interface Props {
  shares: readonly Share[];
  onChange: (shares: Share[]) => void;
  /** What is split, for screen readers. */
  label: string;
}

const NUM_COLORS = 8;
const MOVES: Record<string, number> = {
  ArrowLeft: -STEP_POINTS,
  ArrowDown: -STEP_POINTS,
  ArrowRight: STEP_POINTS,
  ArrowUp: STEP_POINTS,
  PageDown: -10 * STEP_POINTS,
  PageUp: 10 * STEP_POINTS,
  Home: -ALL_POINTS,
  End: ALL_POINTS,
};

/** The shares of versions as a bar. Its borders move by pointer and by arrow keys. */
export function SplitBar({ shares, onChange, label }: Props) {
  const bar = useRef<HTMLDivElement>(null);
  const drag = (index: number) => (event: PointerEvent<HTMLElement>) => {
    const box = bar.current?.getBoundingClientRect();
    if (!box || !event.currentTarget.hasPointerCapture(event.pointerId)) return;
    const reached = ((event.clientX - box.left) / box.width) * ALL_POINTS;
    onChange(moveBorder(shares, index, Math.round(reached / STEP_POINTS) * STEP_POINTS));
  };
  const press = (index: number) => (event: KeyboardEvent) => {
    const move = MOVES[event.key];
    if (move === undefined) return;
    event.preventDefault();
    onChange(moveBorder(shares, index, endOf(shares, index) + move));
  };
  return (
    <div ref={bar} className={styles.bar}>
      {shares.map(({ version, points }, index) => (
        <Fragment key={version}>
          <div className={styles.share} style={{ flexGrow: points, background: color(index) }}>
            {points >= 60 && `v${version} ${percent(points / ALL_POINTS)}`}
          </div>
          {index < shares.length - 1 && (
            <div
              role="slider"
              tabIndex={0}
              className={styles.border}
              style={{ left: `${(endOf(shares, index) / ALL_POINTS) * 100}%` }}
              aria-label={`${label}: border between versions ${version} and ${shares[index + 1]?.version}`}
              aria-valuemin={endOf(shares, index - 1) / STEP_POINTS}
              aria-valuemax={endOf(shares, index + 1) / STEP_POINTS}
              aria-valuenow={endOf(shares, index) / STEP_POINTS}
              aria-valuetext={`version ${version} gets ${percent(points / ALL_POINTS)}`}
              onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
              onPointerMove={drag(index)}
              onKeyDown={press(index)}
            />
          )}
        </Fragment>
      ))}
    </div>
  );
}

function color(index: number): string {
  return `color-mix(in srgb, var(--series-${(index % NUM_COLORS) + 1}) 26%, var(--surface))`;
}
