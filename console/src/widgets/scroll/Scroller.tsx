import { type ReactNode, type RefObject, useEffect, useRef } from "react";
import { markHiddenSides } from "./markHiddenSides";
import styles from "./Scroller.module.css";

interface Props {
  /** What scrolls, for screen readers. */
  label: string;
  children: ReactNode;
  className?: string;
  /** In CSS pixels; it fills its place otherwise. */
  maxHeight?: number;
  element?: RefObject<HTMLElement | null>;
}

/** A place that scrolls, also by keyboard. Its end fades where more columns follow. */
export function Scroller({ label, children, className = "", maxHeight, element }: Props) {
  const own = useRef<HTMLElement>(null);
  const shown = element ?? own;
  useEffect(() => (shown.current ? markHiddenSides(shown.current) : undefined), [shown]);
  return (
    <section
      ref={shown}
      className={`${styles.scroller} ${className}`}
      style={{ maxHeight }}
      aria-label={label}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a keyboard scrolls it.
      tabIndex={0}
    >
      {children}
    </section>
  );
}
