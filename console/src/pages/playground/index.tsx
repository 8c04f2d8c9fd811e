import { useMemo, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { BatchMode } from "./BatchMode";
import styles from "./layout.module.css";
import { OneTask } from "./OneTask";
import { SeveralTasks } from "./SeveralTasks";
import { TextsContext } from "./useTexts";

const MODES = [
  { mode: "one", title: "One task", Component: OneTask },
  { mode: "several", title: "Several tasks on one text", Component: SeveralTasks },
  { mode: "batch", title: "Mixed batch", Component: BatchMode },
] as const;

/** Tries tasks on texts, and shows who answered and how long it took. */
export default function PlaygroundPage() {
  const [search] = useSearchParams();
  const { Component } = MODES.find(({ mode }) => mode === search.get("mode")) ?? MODES[0];
  const [typed, setTyped] = useState<readonly string[] | null>(null);
  const shared = useMemo(() => ({ typed, setTyped }), [typed]);
  return (
    <TextsContext value={shared}>
      <PageHeading title="Playground" />
      <nav className={styles.modes} aria-label="What to ask">
        {MODES.map(({ mode, title, Component: own }) => (
          <Link
            key={mode}
            href={`/playground?${withMode(search, mode)}`}
            className={styles.mode}
            aria-current={own === Component ? "page" : undefined}
          >
            {title}
          </Link>
        ))}
      </nav>
      <Component />
    </TextsContext>
  );
}

function withMode(search: URLSearchParams, mode: string): URLSearchParams {
  const next = new URLSearchParams(search);
  next.set("mode", mode);
  return next;
}
