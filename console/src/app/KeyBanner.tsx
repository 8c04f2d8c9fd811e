import { useKey } from "@/api/key";
import { Button } from "@/widgets/button/Button";
import styles from "./KeyBanner.module.css";

/** Says that the server refuses the key, or asks for one. */
export function KeyBanner({ onKey }: { onKey: () => void }) {
  const { key, refusal } = useKey();
  if (!refusal) return null;
  return (
    <div className={styles.banner} role="alert">
      <span>
        <strong>{key ? "The server refuses this key." : "This server needs a key."}</strong> {key && refusal}
      </span>
      <Button onClick={onKey}>{key ? "Enter another key" : "Enter key"}</Button>
    </div>
  );
}
