import { html, nothing } from "lit-html";
import { until } from "lit-html/directives/until.js";
import { beside } from "./beside.ts";
import { copy } from "./save.ts";

/** Views that few answers need. Their libraries are loaded when the first such view is on the page. */

/** Longer code is not highlighted. UTF-16 units. */
const MAX_COLOURED = 20_000;

/** A longer diagram is shown as its text. UTF-16 units. */
const MAX_DIAGRAM = 5_000;

/** The libraries by their scripts. */
interface Libraries {
  "diagrams.js": typeof import("./diagrams.ts");
  "code-colours.js": typeof import("./code-colours.ts");
  "formulas.js": typeof import("./formulas.ts");
}

const loaded: Partial<Libraries> = {};

/**
 * A view that needs a library.
 * @param meanwhile stands in its place until the library is loaded, or where it cannot be
 */
function late<Name extends keyof Libraries>(
  name: Name,
  view: (library: Libraries[Name]) => unknown,
  meanwhile: unknown,
): unknown {
  const library = loaded[name];
  if (library) return view(library);
  const later = beside(name).then(
    (made: Libraries[Name]) => {
      loaded[name] = made;
      return view(made);
    },
    () => meanwhile,
  );
  return until(later, meanwhile);
}

/**
 * Code with a button that copies it. The code is highlighted after the library has been loaded.
 * @param info the text after its fence
 * @param isOpen true if more of the code follows: it is then not highlighted
 */
export function codeBlock(code: string, info: string, isOpen: boolean = false) {
  const [language = ""] = info.split(/[\s{,]/);
  const isDiagram = language === "mermaid" && !isOpen && code.length <= MAX_DIAGRAM;
  const isPlain = isOpen || language === "" || code.length > MAX_COLOURED;
  const coloured = () => late("code-colours.js", ({ colouredCode }) => colouredCode(code, language), code);
  return html`<figure class="code-block card overflow-hidden bg-sunken p-0">
    <figcaption class="buttons spread line-below ps-3 pe-1 text-sm text-muted"><span>${language.slice(0, 30) || "Code"}</span><button type="button" class="plain" @click=${(event: Event) => void copy(event, code)}>Copy</button></figcaption>
    ${isDiagram ? late("diagrams.js", (library) => diagram(code, library), nothing) : nothing}
    ${isDiagram ? html`<details class="px-3 py-1"><summary>As written</summary>${written(code)}</details>` : written(isPlain ? code : coloured())}
  </figure>`;
}

function written(code: unknown) {
  return html`<pre class="max-h-[70vh] overflow-auto px-3 py-3 whitespace-pre" dir="ltr" tabindex="0" aria-label="Code"><code class="bg-transparent p-0">${code}</code></pre>`;
}

function diagram(code: string, { diagramUrl }: Libraries["diagrams.js"]) {
  try {
    return html`<img class="mx-auto block max-h-[70vh] max-w-full bg-[white] p-2" src=${diagramUrl(code)} alt="Diagram" />`;
  } catch {
    return html`<p class="note">This is no diagram that the page can draw.</p>`;
  }
}

/** @param isDisplayed whether it is a line of its own */
export function formula(tex: string, isDisplayed: boolean): unknown {
  return late("formulas.js", ({ formulaElement }) => formulaElement(tex, isDisplayed), html`<code>${tex}</code>`);
}
