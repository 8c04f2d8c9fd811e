import { useQuery } from "@tanstack/react-query";
import { Suspense, useState } from "react";
import { Redirect, Route, Switch, useLocation } from "wouter";
import { serverInfo } from "@/api/info";
import { EmptyState } from "@/widgets/states/EmptyState";
import { Loading } from "@/widgets/states/Loading";
import { ErrorBoundary } from "./ErrorBoundary";
import { KeyBanner } from "./KeyBanner";
import { KeyDialog } from "./KeyDialog";
import { Palette } from "./Palette";
import { HOME, PAGES } from "./pages";
import styles from "./Shell.module.css";
import { TopBar } from "./TopBar";
import { Tour } from "./Tour";
import { isFirstVisit } from "./tour";
import { useShellCommands } from "./useShellCommands";
import { useShortcut } from "./useShortcut";

/** The frame of every page: navigation, key, theme, palette, and the tour of a first visit. */
export function Shell() {
  const [dialog, setDialog] = useState<"key" | "palette" | null>(null);
  const [isTouring, setTouring] = useState(isFirstVisit);
  // A visitor whom the server refuses sees nothing of the pages.
  const { isSuccess: isIn } = useQuery({ ...serverInfo(), enabled: isTouring });
  const close = () => setDialog(null);
  useShellCommands(
    () => setDialog("key"),
    () => setTouring(true),
  );
  useShortcut("k", () => setDialog((shown) => (shown === "palette" ? null : "palette")));
  return (
    <div className={styles.shell}>
      <TopBar onKey={() => setDialog("key")} onPalette={() => setDialog("palette")} />
      <KeyBanner onKey={() => setDialog("key")} />
      <main className={styles.page} id="page">
        <ShownPage />
      </main>
      {isTouring && isIn && <Tour onClose={() => setTouring(false)} />}
      {dialog === "key" && <KeyDialog onClose={close} />}
      {dialog === "palette" && <Palette onClose={close} />}
    </div>
  );
}

function ShownPage() {
  const [path] = useLocation();
  return (
    <ErrorBoundary key={path}>
      <Suspense fallback={<Loading label="Loading the page" />}>
        <Switch>
          <Route path="/">
            <Redirect to={HOME} replace />
          </Route>
          {PAGES.map(({ path: pattern, Component }) => (
            <Route key={pattern} path={pattern} component={Component} />
          ))}
          <Route>
            <EmptyState title="There is no such page">
              Nothing of this console is at <code>{path}</code>. The navigation above leads to every page.
            </EmptyState>
          </Route>
        </Switch>
      </Suspense>
    </ErrorBoundary>
  );
}
