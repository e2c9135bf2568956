/** Light, dark, or what the system says. Kept for all tabs of this browser. */

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

/** Shows the theme that was chosen. */
export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

/** @param {Theme} chosen */
export function chooseTheme(chosen) {
  try {
    localStorage.setItem(NAME, chosen);
  } catch {
    // A browser that keeps nothing: it holds for this page.
  }
  document.documentElement.dataset.theme = chosen;
}
