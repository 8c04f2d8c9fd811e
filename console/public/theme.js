// Sets the theme before the first paint. A script of its own, because the content security policy refuses inline ones;
// src/app/theme.ts, which loads later, follows the choice from then on.
const chosen = localStorage.getItem("peltier.theme");
const isDark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
document.documentElement.dataset.theme = isDark ? "dark" : "light";
