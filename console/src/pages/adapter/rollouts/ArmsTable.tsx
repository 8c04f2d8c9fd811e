import type { Rollout } from "@/api/rollouts";
import { percent, whole } from "@/widgets/format/numbers";
import styles from "./rollouts.module.css";

/** What was counted of the candidate and of the incumbent. */
export function ArmsTable({ rollout }: { rollout: Rollout }) {
  const arms = [
    { name: "Candidate", version: rollout.candidate, counts: rollout.counts?.candidate },
    { name: "Incumbent", version: rollout.incumbent, counts: rollout.counts?.incumbent },
  ];
  return (
    <table className={styles.table} aria-label="Counts">
      <thead>
        <tr>
          <th scope="col">Version</th>
          <th scope="col">Requests</th>
          <th scope="col">Failed</th>
          <th scope="col">Judged rows</th>
          <th scope="col">Right</th>
        </tr>
      </thead>
      <tbody>
        {arms.map(({ name, version, counts = {} }) => (
          <tr key={name}>
            <th scope="row">
              {name} v{version}
            </th>
            <td>{whole(counts.answers ?? 0)}</td>
            <td>{whole(counts.failed ?? 0)}</td>
            <td>{whole(counts.judged ?? 0)}</td>
            <td>{counts.judged ? percent((counts.right ?? 0) / counts.judged) : "–"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
