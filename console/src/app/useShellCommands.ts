import { useMemo } from "react";
import { setKey } from "@/api/key";
import { type Command, useCommands } from "./commands";
import { navigate } from "./hash";
import { PAGES } from "./pages";
import { setThemeChoice, type ThemeChoice } from "./theme";

const THEMES: readonly ThemeChoice[] = ["system", "light", "dark"];

/** The commands that every page has. */
export function useShellCommands(openKey: () => void, openTour: () => void): void {
  const tour: Command = { id: "tour", title: "Show the tour", group: "Help", run: openTour };
  // biome-ignore lint/correctness/useExhaustiveDependencies: both only set state, so that their first values serve.
  useCommands(useMemo(() => [...toPages(), ...toThemes(), ...ofKey(openKey), tour], []));
}

function toPages(): Command[] {
  return PAGES.flatMap(({ path, title }) =>
    title ? [{ id: `page ${path}`, title, group: "Go to", run: () => navigate(path) }] : [],
  );
}

function toThemes(): Command[] {
  return THEMES.map((theme) => ({
    id: `theme ${theme}`,
    title: theme === "system" ? "Theme of the system" : `${theme === "dark" ? "Dark" : "Light"} theme`,
    group: "Appearance",
    run: () => setThemeChoice(theme),
  }));
}

function ofKey(openKey: () => void): Command[] {
  return [
    { id: "key enter", title: "Enter a key", group: "Key", run: openKey },
    { id: "key forget", title: "Forget the key", group: "Key", run: () => setKey("") },
  ];
}
