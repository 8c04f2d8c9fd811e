import { useEffect, useEffectEvent, useId, useRef, useState } from "react";
import { Button } from "@/widgets/button/Button";
import { navigate } from "./hash";
import styles from "./Tour.module.css";
import { rememberVisit, STEPS } from "./tour";

/** Four steps through the pages. The page behind stays usable; Escape ends the tour, and the focus goes back. */
export function Tour({ onClose }: { onClose: () => void }) {
  const [place, setPlace] = useState(0);
  const forward = useRef<HTMLButtonElement>(null);
  const [titleId, textId] = [useId(), useId()];
  const step = STEPS[place];
  const isLast = place === STEPS.length - 1;
  const end = useEffectEvent(onClose);
  useEffect(() => {
    const before = document.activeElement;
    rememberVisit();
    forward.current?.focus();
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]")) end();
    };
    addEventListener("keydown", onKeyDown);
    return () => {
      removeEventListener("keydown", onKeyDown);
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const show = (next: number) => {
    setPlace(next);
    const path = STEPS[next]?.path;
    if (path) navigate(path);
  };
  if (!step) return null;
  return (
    <section className={styles.tour} role="dialog" aria-labelledby={titleId} aria-describedby={textId}>
      <p className={styles.count}>
        Step {place + 1} of {STEPS.length}
      </p>
      <div aria-live="polite">
        <h2 id={titleId}>{step.title}</h2>
        <p id={textId}>{step.text}</p>
      </div>
      <div className={styles.actions}>
        {!isLast && (
          <Button kind="quiet" onClick={onClose}>
            Skip the tour
          </Button>
        )}
        {place > 0 && <Button onClick={() => show(place - 1)}>Back</Button>}
        <Button ref={forward} kind="primary" onClick={() => (isLast ? onClose() : show(place + 1))}>
          {isLast ? "Done" : "Next"}
        </Button>
      </div>
    </section>
  );
}
