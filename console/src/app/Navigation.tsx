import { useEffect, useRef } from "react";
import { Link, useLocation } from "wouter";
import { markHiddenSides } from "@/widgets/scroll/markHiddenSides";
import styles from "./Navigation.module.css";
import { PAGES } from "./pages";

export function Navigation() {
  const [path] = useLocation();
  const links = useRef<HTMLElement>(null);
  // Where the links do not fit, they scroll; the one of this page is in view.
  // biome-ignore lint/correctness/useExhaustiveDependencies: the current link changes with the path.
  useEffect(() => {
    links.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path]);
  useEffect(() => (links.current ? markHiddenSides(links.current) : undefined), []);
  return (
    <nav ref={links} className={styles.pages} aria-label="Pages">
      {PAGES.filter((page) => page.title).map((page) => (
        <Link
          key={page.path}
          href={page.path}
          className={styles.page}
          aria-current={isWithin(path, page.path) ? "page" : undefined}
        >
          {page.title}
        </Link>
      ))}
    </nav>
  );
}

function isWithin(path: string, page: string): boolean {
  return path === page || path.startsWith(`${page}/`);
}
