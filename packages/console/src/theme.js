/** Light, dark, or the system's theme. The browser keeps the choice for all tabs. */

const NAME = "console.theme";
const THEMES = /** @type {const} */ (["auto", "light", "dark"]);

/** @typedef {(typeof THEMES)[number]} Theme */

/** @returns {Theme} */
export function theme() {
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

/** @param {Theme} chosen */
export function chooseTheme(chosen) {
  try {
    localStorage.setItem(NAME, chosen);
  } catch {
    // If the browser stores nothing, the choice applies to this page.
  }
  document.documentElement.dataset.theme = chosen;
}
