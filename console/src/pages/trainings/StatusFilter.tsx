import type { TrainingStatus } from "@/api/trainings";
import { STATUSES } from "./statuses";
import styles from "./Trainings.module.css";

interface Props {
  /** Null shows all. */
  status: TrainingStatus | null;
  onChange: (status: TrainingStatus | null) => void;
}

/** Which trainings are shown. */
export function StatusFilter({ status, onChange }: Props) {
  const choose = (value: string) => onChange(STATUSES.find((known) => known === value) ?? null);
  return (
    <label className={styles.filter}>
      Status
      <select value={status ?? ""} onChange={(event) => choose(event.target.value)}>
        <option value="">all</option>
        {STATUSES.map((known) => (
          <option key={known}>{known}</option>
        ))}
      </select>
    </label>
  );
}
