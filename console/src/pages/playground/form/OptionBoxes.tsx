import styles from "../layout.module.css";
import type { Options } from "../useOneTask";

const LABELS: Readonly<Record<keyof Options, string>> = {
  splitsLines: "each line is a text",
  hasPair: "with a second text",
  streams: "stream the text",
  wantsGates: "gates",
};
const NAMES = Object.keys(LABELS) as (keyof Options)[];

interface Props {
  /** Those that the task has. */
  offers: Readonly<Record<keyof Options, boolean>>;
  options: Options;
  onChange: (options: Options) => void;
}

export function OptionBoxes({ offers, options, onChange }: Props) {
  return (
    <div className={styles.options}>
      {NAMES.filter((name) => offers[name]).map((name) => (
        <label key={name}>
          <input
            type="checkbox"
            checked={options[name]}
            onChange={(event) => onChange({ ...options, [name]: event.target.checked })}
          />
          {LABELS[name]}
        </label>
      ))}
    </div>
  );
}
