import { ApiError, sentence } from "@/api/error";
import styles from "./InlineError.module.css";
import { nextStep } from "./nextStep";

/** What went wrong with one row, task or request: the server's sentence and every reason. */
export function InlineError({ error }: { error: Error }) {
  const details =
    error instanceof ApiError ? error.details.map(String).filter((detail) => sentence(detail) !== error.message) : [];
  const { advice } = nextStep(error);
  return (
    <div className={styles.error} role="alert">
      <p>
        {error.message} {error instanceof ApiError && <code>{error.code}</code>}
      </p>
      {details.length > 0 && (
        <ul>
          {details.map((detail) => (
            <li key={detail}>{detail}</li>
          ))}
        </ul>
      )}
      {advice && <p className={styles.advice}>{advice}</p>}
    </div>
  );
}
