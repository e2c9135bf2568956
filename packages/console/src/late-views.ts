import { html, nothing } from "lit-html";
import { until } from "lit-html/directives/until.js";
import { beside } from "./beside.ts";
import { copy } from "./save.ts";

/** Views that few answers need. Their libraries are loaded when the first such view is on the page. */

/** Longer code is not highlighted. UTF-16 units. */
const MAX_COLOURED = 20_000;

/** A longer diagram is shown as its text. UTF-16 units. */
const MAX_DIAGRAM = 5_000;

let diagrams: typeof import("./diagrams.ts") | undefined;
let colours: typeof import("./code-colours.ts") | undefined;
let formulas: typeof import("./formulas.ts") | undefined;

/**
 * Code with a button that copies it. The code is highlighted after the library has been loaded.
 * @param info the text after its fence
 * @param isOpen true if more of the code follows: it is then not highlighted
 */
export function codeBlock(code: string, info: string, isOpen: boolean = false) {
  const [language = ""] = info.split(/[\s{,]/);
  const isDiagram = language === "mermaid" && !isOpen && code.length <= MAX_DIAGRAM;
  const isPlain = isOpen || language === "" || code.length > MAX_COLOURED;
  return html`<figure class="code-block">
    <figcaption><span>${language.slice(0, 30) || "Code"}</span><button type="button" class="plain" @click=${(event: Event) => void copy(event, code)}>Copy</button></figcaption>
    ${isDiagram ? diagram(code) : nothing}
    ${isDiagram ? html`<details><summary>As written</summary>${written(code)}</details>` : written(isPlain ? code : coloured(code, language))}
  </figure>`;
}

function written(code: unknown) {
  return html`<pre dir="ltr" tabindex="0" aria-label="Code"><code>${code}</code></pre>`;
}

function diagram(code: string): unknown {
  if (diagrams) {
    try {
      return html`<img class="diagram" src=${diagrams.diagramUrl(code)} alt="Diagram" />`;
    } catch {
      return html`<p class="note">This is no diagram that the page can draw.</p>`;
    }
  }
  const later = beside("diagrams.js").then(
    (loaded) => {
      diagrams = loaded;
      return diagram(code);
    },
    () => nothing,
  );
  return until(later, nothing);
}

function coloured(code: string, language: string): unknown {
  if (colours) return colours.colouredCode(code, language);
  const later = beside("code-colours.js").then(
    (loaded) => {
      colours = loaded;
      return coloured(code, language);
    },
    () => code,
  );
  return until(later, code);
}

/** @param isDisplayed whether it is a line of its own */
export function formula(tex: string, isDisplayed: boolean): unknown {
  if (formulas) return formulas.formulaElement(tex, isDisplayed);
  const asWritten = html`<code>${tex}</code>`;
  const later = beside("formulas.js").then(
    (loaded) => {
      formulas = loaded;
      return formula(tex, isDisplayed);
    },
    () => asWritten,
  );
  return until(later, asWritten);
}
