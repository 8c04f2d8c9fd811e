import { type ReactNode, useCallback, useState } from "react";
import { NoticeList } from "./NoticeList";
import { type Notice, NoticeContext } from "./notices";

const SHOWN_MS = 12_000;
const FAILURE_SHOWN_MS = 30_000;

/** Keeps the notices that pages show at the bottom of the window. */
export function NoticeProvider({ children }: { children: ReactNode }) {
  const [notices, setNotices] = useState<readonly Notice[]>([]);
  const dismiss = useCallback((id: number) => setNotices((all) => all.filter((notice) => notice.id !== id)), []);
  const show = useCallback(
    (notice: Omit<Notice, "id">) => {
      const id = performance.now();
      setNotices((all) => [...all.slice(-2), { ...notice, id }]);
      setTimeout(() => dismiss(id), notice.tone === "bad" ? FAILURE_SHOWN_MS : SHOWN_MS);
    },
    [dismiss],
  );
  return (
    <NoticeContext value={show}>
      {children}
      <NoticeList notices={notices} onDismiss={dismiss} />
    </NoticeContext>
  );
}
