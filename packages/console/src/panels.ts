/** The panels beside the chat. This browser remembers which are open. */

export type Panel = "chats" | "map" | "settings";

const KEY = "console.panels";

const WIDE = "(min-width: 1100px)";

/** A wide window has room for the list of chats and the settings. */
function initially(): Panel[] {
  return matchMedia(WIDE).matches ? ["chats", "settings"] : [];
}

let open: Panel[] | undefined;

function panels(): Panel[] {
  if (open) return open;
  try {
    // A narrow window begins with the chat alone.
    const kept: Panel[] | null = matchMedia(WIDE).matches ? JSON.parse(localStorage.getItem(KEY) ?? "null") : null;
    open = kept ?? initially();
  } catch {
    open = initially();
  }
  return open;
}

export function isPanelOpen(panel: Panel) {
  return panels().includes(panel);
}

/** Opens or closes a panel. A narrow window has room for one. */
export function switchPanel(panel: Panel) {
  const isWide = matchMedia(WIDE).matches;
  const others = isWide ? panels().filter((each) => each !== panel) : [];
  open = isPanelOpen(panel) ? others : [...others, panel];
  if (!isWide) return;
  try {
    localStorage.setItem(KEY, JSON.stringify(open));
  } catch {
    // The choice lasts as long as the page.
  }
}
