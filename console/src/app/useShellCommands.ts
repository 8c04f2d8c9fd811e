import { useMemo } from "react";
import { setKey } from "@/api/key";
import { type Command, useCommands } from "./commands";
import { navigate } from "./hash";
import { PAGES } from "./pages";
import { setThemeChoice, type ThemeChoice } from "./theme";

const THEMES: readonly ThemeChoice[] = ["system", "light", "dark"];

/** The commands that every page has. */
export function useShellCommands(openKey: () => void): void {
  // biome-ignore lint/correctness/useExhaustiveDependencies: `openKey` only sets state, so that its first value serves.
  useCommands(useMemo(() => [...toPages(), ...toThemes(), ...ofKey(openKey)], []));
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
