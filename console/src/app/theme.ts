// Dark or light: what the visitor chose, otherwise what the system prefers.
import { useSyncExternalStore } from "react";

export type ThemeChoice = "system" | "light" | "dark";
export type Theme = "light" | "dark";

const NAME = "peltier.theme";
const CHOICES: readonly ThemeChoice[] = ["system", "light", "dark"];
const preference = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function useThemeChoice(): ThemeChoice {
  return useSyncExternalStore(subscribe, themeChoice);
}

/** The theme that is shown. Charts, which draw on a canvas, read it. */
export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, shownTheme);
}

export function setThemeChoice(choice: ThemeChoice): void {
  localStorage.setItem(NAME, choice);
  showTheme();
}

export function nextThemeChoice(choice: ThemeChoice): ThemeChoice {
  return CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length] ?? "system";
}

/** Shows the theme, now and whenever the system changes it. */
export function followTheme(): void {
  preference.addEventListener("change", showTheme);
  showTheme();
}

function themeChoice(): ThemeChoice {
  const kept = localStorage.getItem(NAME);
  return CHOICES.find((choice) => choice === kept) ?? "system";
}

function shownTheme(): Theme {
  const choice = themeChoice();
  return choice === "system" ? (preference.matches ? "dark" : "light") : choice;
}

function showTheme(): void {
  document.documentElement.dataset.theme = shownTheme();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
