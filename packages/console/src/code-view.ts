import { html, render } from "lit-html";
import { samplesOf } from "./code-samples.ts";
import { codeBlock } from "./late-views.ts";
import type { Transport } from "./sending.ts";

/** The language that the user chose last in this tab. */
let language = "curl";

/**
 * A request as code, in a box. The code is made when the user opens the box.
 * @param request Throws if no request can be made.
 */
export function codeView(label: string, request: () => { body: Record<string, unknown>; transport: Transport }) {
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
    let samples: ReturnType<typeof samplesOf>;
    try {
      const { body, transport } = request();
      samples = samplesOf(body, transport, `${location.origin}/v1`);
    } catch (error) {
      return html`<p class="fault" dir="auto">${error instanceof Error ? error.message : String(error)}</p>`;
    }
    const chosen = samples.find(({ name }) => name === language);
    const choose = (name: string) => {
      language = name;
      draw();
    };
    return html`<div class="stack tight inner">
      <div class="buttons" role="group" aria-label="Language">
        ${samples.map(
          ({ name }) =>
            html`<button type="button" aria-pressed=${name === language} @click=${() => choose(name)}>${name}</button>`,
        )}
      </div>
      ${codeBlock(chosen?.code ?? "", language === "curl" ? "bash" : language)}
    </div>`;
  }
}
