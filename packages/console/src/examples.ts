import { html } from "lit-html";
import { type Draft, FUNCTION_EXAMPLE, SCHEMA_EXAMPLE } from "./request-body.ts";

/** Three example requests. The simulator answers each of them, and so does any model. */

const EXAMPLES: readonly { label: string; request: Partial<Draft> }[] = [
  { label: "An answer with code, a table and a formula", request: { input: "Show me what an answer can look like." } },
  {
    label: "A call of a function",
    request: { input: "What is the weather in Lisbon? Call get_weather.", functions: FUNCTION_EXAMPLE },
  },
  {
    label: "An answer as JSON, by a schema",
    request: { input: "Which is the largest owl?", format: "json_schema", schema: SCHEMA_EXAMPLE },
  },
];

/** Buttons that send the examples. */
export function examplesTemplate(ask: (request: Partial<Draft>) => void) {
  return html`<div class="stack my-auto text-center">
    <p class="note">Ask something. The answer appears here as it comes. To begin with:</p>
    <ul class="stack tight">
      ${EXAMPLES.map(({ label, request }) => html`<li><button type="button" @click=${() => ask(request)}>${label}</button></li>`)}
    </ul>
  </div>`;
}
