/** Light, dark, or the system's theme. The browser keeps the choice for all tabs. */

const NAME = "console.theme";
const THEMES = ["auto", "light", "dark"] as const;

export type Theme = (typeof THEMES)[number];

export function theme(): Theme {
  try {
    return THEMES.find((each) => each === localStorage.getItem(NAME)) ?? "auto";
  } catch {
    return "auto";
  }
}

/** Applies the chosen theme. */
export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

export function chooseTheme(chosen: Theme) {
  try {
    localStorage.setItem(NAME, chosen);
  } catch {
    // If the browser stores nothing, the choice applies to this page.
  }
  document.documentElement.dataset.theme = chosen;
}
