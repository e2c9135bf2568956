import { html } from "lit-html";
import { filesSection } from "./files-list.js";
import { partsOf } from "./list-and-one.js";
import { storeSection } from "./store.js";
import { storesSection } from "./stores-list.js";

/** Files and vector stores of the tenant: `#/files`, `#/files/stores`, `#/files/stores/{id}`. */

/** @param {HTMLElement} view @returns {import("./main.js").View} */
export function filesView(view) {
  return partsOf(view, "Files", partOf, navigation);
}

/** @param {HTMLElement} element @param {string[]} path @returns {import("./list-and-one.js").Part} */
function partOf(element, [section, id]) {
  if (section !== "stores") return filesSection(element);
  return id ? storeSection(element, id) : storesSection(element);
}

/** @param {string[]} path */
function navigation([section]) {
  const isStores = section === "stores";
  return html`<nav class="sections" aria-label="Sections">
    <a href="#/files" aria-current=${isStores ? "false" : "page"}>Files</a>
    <a href="#/files/stores" aria-current=${isStores ? "page" : "false"}>Vector stores</a>
  </nav>`;
}
