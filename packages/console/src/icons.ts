import { html, nothing, svg } from "lit-html";

/** Icons for actions: strokes on a square of 16 units. Their names are told to screen readers, and shown as tooltips. */
const PATHS = {
  batch: "M2.5 3.5h11M2.5 6.5h11M2.5 9.5h6M11.5 9v5M9 11.5h5",
  again: "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v3h-3",
  attach: "M12.5 7.5 7.6 12.4a3 3 0 0 1-4.2-4.2L8.8 2.8a2 2 0 0 1 2.8 2.8L6.3 11a1 1 0 0 1-1.4-1.4l4.6-4.6",
  branch: "M5 3v10M5 9c4 0 6-1 6-4M3.5 3h3M9.5 5h3M3.5 13h3",
  chats: "M2.5 3.5h11v7h-6l-3 2.5v-2.5h-2z",
  close: "M4 4l8 8M12 4l-8 8",
  code: "M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5",
  copy: "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
  details: "M8 7v4.5M8 4.5v.6M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  down: "M8 3v10M4 9l4 4 4-4",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3z",
  export: "M8 2v8M5 7l3 3 3-3M3 12.5h10",
  link: "M6.5 9.5l3-3M7 4.5l1.3-1.3a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5l-1.3 1.3a3 3 0 0 1-4.5-4.5L4.5 7",
  map: "M4 3.5v6a3 3 0 0 0 3 3h1M4 5.5h7M11 4h2v3h-2zM8 11h2v3H8zM3 2h2v2H3z",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  new: "M8 3v10M3 8h10",
  next: "M6 3.5 10.5 8 6 12.5",
  pin: "M6 2.5h4l-.5 4L12 9H4l2.5-2.5zM8 9v4.5",
  power: "M8 2v5.5M5 3.8a5.2 5.2 0 1 0 6 0",
  previous: "M10 3.5 5.5 8l4.5 4.5",
  send: "M8 13V3M4 7l4-4 4 4",
  settings: "M2.5 5h6M12 5h1.5M8.5 3.5v3M2.5 11H4M7.5 11h6M5.5 9.5v3",
  stop: "M4.5 4.5h7v7h-7z",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9",
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">${svg`<path d=${PATHS[name]} />`}</svg>`;
}

/** A button of which only the icon is seen. `isOn`: a state that the button switches. */
export function iconButton(
  name: IconName,
  label: string,
  press: (event: Event) => void,
  { isOn, isDisabled = false, look = "" }: { isOn?: boolean; isDisabled?: boolean; look?: string } = {},
) {
  return html`<button
    type="button"
    class="icon-button ${look}"
    title=${label}
    aria-label=${label}
    aria-pressed=${isOn === undefined ? nothing : String(isOn)}
    ?disabled=${isDisabled}
    @click=${press}
  >${icon(name)}</button>`;
}

/** A link of which only the icon is seen. */
export function iconLink(name: IconName, label: string, href: string) {
  return html`<a class="icon-button" title=${label} aria-label=${label} href=${href}>${icon(name)}</a>`;
}
