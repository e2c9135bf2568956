import { html, render } from "lit-html";
import { samplesOf } from "./code-samples.js";
import { copy } from "./save.js";

/** The language that the user chose last in this tab. */
let language = "curl";

/**
 * A request as code, in a box. The code is made when the user opens the box.
 * @param {string} label
 * @param {() => { body: Record<string, unknown>, transport: import("./sending.js").Transport }} request Throws if no
 *   request can be made.
 */
export function codeView(label, request) {
  const element = document.createElement("details");
  element.className = "code-samples";
  const inner = document.createElement("div");
  const summary = document.createElement("summary");
  summary.textContent = label;
  element.append(summary, inner);
  element.addEventListener("toggle", draw);
  return { element, draw };

  function draw() {
    render(element.open ? samplesTemplate() : "", inner);
  }

  function samplesTemplate() {
    let samples;
    try {
      const { body, transport } = request();
      samples = samplesOf(body, transport, `${location.origin}/v1`);
    } catch (error) {
      return html`<p class="fault" dir="auto">${error instanceof Error ? error.message : String(error)}</p>`;
    }
    const chosen = samples.find(({ name }) => name === language);
    const choose = (/** @type {string} */ name) => {
      language = name;
      draw();
    };
    return html`<div class="inner">
      <div class="buttons" role="group" aria-label="Language">
        ${samples.map(
          ({ name }) =>
            html`<button type="button" aria-pressed=${name === language} @click=${() => choose(name)}>${name}</button>`,
        )}
        <button type="button" class="plain" @click=${(/** @type {Event} */ event) => void copy(event, chosen?.code ?? "")}>Copy</button>
      </div>
      <pre class="sample" dir="ltr" tabindex="0" aria-label="The request for ${language}">${chosen?.code}</pre>
    </div>`;
  }
}
