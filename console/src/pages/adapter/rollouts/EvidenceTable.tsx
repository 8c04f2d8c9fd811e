import type { Rollout } from "@/api/rollouts";
import { significant } from "@/widgets/format/numbers";
import { progressOf, TESTS } from "./evidence";
import styles from "./rollouts.module.css";

/** The evidence of each sequential test beside what a decision needs. */
export function EvidenceTable({ rollout }: { rollout: Rollout }) {
  const { evidence = {}, needed = {} } = rollout;
  return (
    <table className={styles.table} aria-label="Evidence">
      <thead>
        <tr>
          <th scope="col">Test</th>
          <th scope="col">Evidence</th>
          <th scope="col">Needed</th>
          <th scope="col">On the way</th>
        </tr>
      </thead>
      <tbody>
        {TESTS.filter(({ id }) => needed[id] !== undefined).map(({ id, says, decision }) => (
          <tr key={id}>
            <th scope="row">
              {says}: {decision}
            </th>
            <td>{significant(evidence[id] ?? 1)}</td>
            <td>{significant(needed[id] ?? 1)}</td>
            <td>
              <progress aria-label={says} max={1} value={progressOf(evidence[id] ?? 1, needed[id] ?? 1)} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
