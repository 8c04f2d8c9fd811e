import { ApiError } from "@/api/error";
import { Button } from "@/widgets/button/Button";
import { EmptyState } from "./EmptyState";
import { nextStep } from "./nextStep";
import styles from "./states.module.css";

interface Props {
  error: Error;
  onRetry?: () => void;
}

/** Stands where something failed: the server's sentence, and what to do next. */
export function ErrorState({ error, onRetry }: Props) {
  const { title, advice } = nextStep(error);
  const requestId = error instanceof ApiError ? error.requestId : null;
  return (
    <div role="alert">
      <EmptyState title={title} actions={onRetry && <Button onClick={onRetry}>Try again</Button>}>
        <p>{error.message}</p>
        {advice && <p>{advice}</p>}
        {requestId && (
          <p className={styles.small}>
            Request <code>{requestId}</code>
          </p>
        )}
      </EmptyState>
    </div>
  );
}
