import { type ReactNode, useEffect } from "react";
import styles from "./PageHeading.module.css";

interface Props {
  title: string;
  /** What stands under the title. */
  about?: ReactNode;
  /** Buttons of the whole page. */
  children?: ReactNode;
}

/** The heading of a page, which also names the tab. */
export function PageHeading({ title, about, children }: Props) {
  useEffect(() => {
    document.title = `${title} · Peltier`;
  }, [title]);
  return (
    <div className={styles.heading}>
      <div>
        <h1>{title}</h1>
        {about && <div className={styles.about}>{about}</div>}
      </div>
      {children && <div className={styles.actions}>{children}</div>}
    </div>
  );
}
