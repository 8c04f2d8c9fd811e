import { useState } from "react";
import type { Ask } from "@/api/predictions";
import { ROOT } from "@/api/server";
import { CopyButton } from "@/widgets/copy/CopyButton";
import { LANGUAGES, type Language, snippet } from "../snippets";
import styles from "./Snippets.module.css";

/** The request as a command and as code. The key is named there and not shown. */
export function Snippets({ ask }: { ask: Ask }) {
  const [language, setLanguage] = useState<Language>("curl");
  const text = snippet(language, ROOT, ask);
  return (
    <details className={styles.snippets}>
      <summary>Copy as curl, Python or JavaScript</summary>
      <div className={styles.head}>
        {LANGUAGES.map((own) => (
          <button
            key={own}
            type="button"
            className={styles.tab}
            aria-pressed={own === language}
            onClick={() => setLanguage(own)}
          >
            {own}
          </button>
        ))}
        <CopyButton text={text} what={`the request as ${language}`} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a keyboard scrolls the code. */}
      <pre className={styles.code} tabIndex={0}>
        {text}
      </pre>
    </details>
  );
}
