import styles from "./RangeChoice.module.css";

export const RANGES = [
  { minutes: 5, name: "5 min" },
  { minutes: 15, name: "15 min" },
  { minutes: 60, name: "1 hour" },
] as const;

interface Props {
  minutes: number;
  onChange: (minutes: number) => void;
}

/** How much of the last hour the charts show. */
export function RangeChoice({ minutes, onChange }: Props) {
  return (
    <label className={styles.choice}>
      <span>Show</span>
      <select value={minutes} onChange={(event) => onChange(Number(event.target.value))}>
        {RANGES.map((range) => (
          <option key={range.minutes} value={range.minutes}>
            {range.name}
          </option>
        ))}
      </select>
    </label>
  );
}
