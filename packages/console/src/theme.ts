import { keep, kept } from "./session.ts";

/** Light, dark, or the system's theme. The browser keeps the choice for all tabs. */
const THEMES = ["auto", "light", "dark"] as const;

export type Theme = (typeof THEMES)[number];

export function theme(): Theme {
  return THEMES.find((each) => each === kept("theme")) ?? "auto";
}

/** Applies the chosen theme. @param chosen without it, the one that the browser keeps */
export function applyTheme(chosen: Theme = theme()) {
  document.documentElement.dataset.theme = chosen;
}

export function chooseTheme(chosen: Theme) {
  keep("theme", chosen);
  applyTheme(chosen);
}
