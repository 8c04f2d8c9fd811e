import { Button } from "@/widgets/button/Button";
import styles from "./NoticeList.module.css";
import type { Notice } from "./notices";

interface Props {
  notices: readonly Notice[];
  onDismiss: (id: number) => void;
}

export function NoticeList({ notices, onDismiss }: Props) {
  return (
    <div className={styles.list} role="status" aria-live="polite">
      {notices.map((notice) => (
        <div key={notice.id} className={`${styles.notice} ${notice.tone === "bad" ? styles.bad : ""}`}>
          <span>{notice.text}</span>
          {notice.action && (
            <Button
              onClick={() => {
                onDismiss(notice.id);
                notice.action?.run();
              }}
            >
              {notice.action.label}
            </Button>
          )}
          <Button kind="quiet" aria-label="Dismiss" onClick={() => onDismiss(notice.id)}>
            ✕
          </Button>
        </div>
      ))}
    </div>
  );
}
