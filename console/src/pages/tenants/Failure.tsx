import { asApiError } from "@/api/server";
import styles from "./Failure.module.css";

/** Why the server refused what was asked, with each reason. */
export function Failure({ error }: { error: Error | null }) {
  if (!error) return null;
  const { message, details } = asApiError(error);
  return (
    <div className={styles.failure} role="alert">
      {message}
      {details.length > 1 && (
        <ul>
          {details.map((detail) => (
            <li key={String(detail)}>{String(detail)}</li>
          ))}
        </ul>
      )}
    </div>
  );
}
