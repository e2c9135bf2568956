import { html, render } from "lit-html";
import { filesSection } from "./files-list.js";
import { storeSection } from "./store.js";
import { storesSection } from "./stores-list.js";

/**
 * Files and vector stores of the tenant: `#/files`, `#/files/stores`, `#/files/stores/{id}`.
 *
 * @typedef {object} Part
 * @property {() => void} show Called each time the part is shown: loads new data.
 * @property {() => void} [hide] Called when another part is shown.
 */

/** @param {HTMLElement} view @returns {import("./main.js").View} */
export function filesView(view) {
  const body = document.createElement("div");
  /** @type {{ address: string, element: HTMLElement, part: Part } | undefined} */
  let shown;

  /** @param {string[]} path */
  function open(path) {
    const address = path.join("/");
    if (shown?.address !== address) {
      shown?.part.hide?.();
      const element = document.createElement("div");
      element.className = "stack";
      shown = { address, element, part: made(path, element) };
    }
    const isStores = path[0] === "stores";
    render(
      html`<div class="stack">
        <h1 class="unseen">Files</h1>
        <nav class="sections" aria-label="Sections">
          <a href="#/files" aria-current=${isStores ? "false" : "page"}>Files</a>
          <a href="#/files/stores" aria-current=${isStores ? "page" : "false"}>Vector stores</a>
        </nav>
        ${body}
      </div>`,
      view,
    );
    body.replaceChildren(shown.element);
    shown.part.show();
  }

  return {
    show: ({ path }) => open(path),
    hide: () => shown?.part.hide?.(),
    signedIn() {
      shown?.part.hide?.();
      shown = undefined;
    },
  };
}

/** @param {string[]} path @param {HTMLElement} element @returns {Part} */
function made([section, id], element) {
  if (section !== "stores") return filesSection(element);
  return id ? storeSection(element, id) : storesSection(element);
}
