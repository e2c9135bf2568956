import { html } from "lit-html";
import { filesSection } from "./files-list.ts";
import type { Part } from "./list-and-one.ts";
import { partsOf } from "./list-and-one.ts";
import { storeSection } from "./store.ts";
import { storesSection } from "./stores-list.ts";
import type { View } from "./view.ts";

/** Files and vector stores of the tenant: `#/files`, `#/files/stores`, `#/files/stores/{id}`. */

export function filesView(view: HTMLElement): View {
  return partsOf(view, "Files", partOf, navigation);
}

function partOf(element: HTMLElement, [section, id]: string[]): Part {
  if (section !== "stores") return filesSection(element);
  return id ? storeSection(element, id) : storesSection(element);
}

function navigation([section]: string[]) {
  const isStores = section === "stores";
  return html`<nav class="sections" aria-label="Sections">
    <a href="#/files" aria-current=${isStores ? "false" : "page"}>Files</a>
    <a href="#/files/stores" aria-current=${isStores ? "page" : "false"}>Vector stores</a>
  </nav>`;
}
