import { keep, kept } from "./session.ts";

/** The panels beside the chat. This browser remembers which are open. */

export type Panel = "chats" | "map" | "settings";

const WIDE = "(min-width: 1100px)";

let open: Panel[] | undefined;

/** A wide window has room for the list of chats and the settings. A narrow one begins with the chat alone. */
function panels(): Panel[] {
  open ??= matchMedia(WIDE).matches ? (kept("panels") ?? ["chats", "settings"]) : [];
  return open ?? [];
}

export function isPanelOpen(panel: Panel) {
  return panels().includes(panel);
}

/** Opens or closes a panel. A narrow window has room for one. */
export function switchPanel(panel: Panel) {
  const isWide = matchMedia(WIDE).matches;
  const others = isWide ? panels().filter((each) => each !== panel) : [];
  open = isPanelOpen(panel) ? others : [...others, panel];
  if (isWide) keep("panels", open);
}
