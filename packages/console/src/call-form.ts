import { html, nothing } from "lit-html";
import type { ApiObject } from "./json.ts";

/**
 * The forms for calls that wait for the client: outputs of functions, and decisions about calls of MCP servers.
 * @param output of the response
 * @param answer Takes the items to send, and the same as text for people.
 */
export function callsTemplate(
  output: readonly ApiObject[],
  response: ApiObject | undefined,
  answer: (items: ApiObject[], text: string) => void,
) {
  if (response?.status !== "completed") return nothing;
  const calls = output.filter(({ type }) => ["function_call", "custom_tool_call"].includes(type));
  const requests = output.filter(({ type }) => type === "mcp_approval_request");
  if (calls.length + requests.length === 0) return nothing;
  const send = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const said = (call: string) => String(form.get(call) ?? "");
    const items = calls.map(({ type, call_id: call }) => ({
      type: `${type}_output`,
      call_id: call,
      output: said(call),
    }));
    answer(items, calls.map(({ name, call_id: call }) => `${name}: ${said(call)}`).join("\n"));
  };
  const decide = (request: string, approve: boolean) =>
    answer(
      [{ type: "mcp_approval_response", approval_request_id: request, approve }],
      approve ? "Approved." : "Denied.",
    );
  return html`<form class="outputs dashed stack" @submit=${send}>
    ${calls.map(
      ({ call_id: call, name }) => html`<div>
        <label for="output-${call}">Output of <code dir="auto">${name}</code></label>
        <textarea dir="auto" id="output-${call}" name=${call} class="code" rows="2"></textarea>
      </div>`,
    )}
    ${requests.map(
      ({ id, server_label: label, name }) => html`<div class="buttons">
        <span>May <code dir="auto">${label}.${name}</code> be called?</span>
        <button type="button" class="primary" @click=${() => decide(id, true)}>Approve</button>
        <button type="button" @click=${() => decide(id, false)}>Deny</button>
      </div>`,
    )}
    ${calls.length > 0 ? html`<div class="buttons"><button class="primary" type="submit">Send ${calls.length > 1 ? "outputs" : "output"}</button></div>` : nothing}
  </form>`;
}

/** The name of a call whose answer can be replaced, by the type of its item: hosted calls, and the client's answers in the input. */
const NAMES: Record<string, (item: ApiObject) => string> = {
  mcp_call: ({ name }) => name ?? "",
  code_interpreter_call: () => "Python",
  function_call_output: () => "Your output",
  custom_tool_call_output: () => "Your output",
};

/**
 * The form that gives an answered call another output, in a branch of its own.
 * @param items of the turn's input and output
 * @param fork Takes the id of the call, and its other output.
 */
export function otherOutputTemplate(items: readonly ApiObject[], fork: (at: string, output: string) => void) {
  const calls = items.filter(({ type = "", status = "completed" }) => NAMES[type] && status === "completed");
  if (calls.length === 0) return nothing;
  const send = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    fork(String(form.get("at")), String(form.get("output")));
  };
  return html`<details class="other-output">
    <summary>What if a tool had answered otherwise?</summary>
    <form class="stack" @submit=${send}>
      <select name="at" aria-label="Call">
        ${calls.map((call) => html`<option value=${call.call_id ?? call.id} dir="auto">${NAMES[call.type ?? ""]?.(call)}</option>`)}
      </select>
      <textarea dir="auto" name="output" class="code" rows="2" aria-label="Other output"></textarea>
      <div class="buttons"><button type="submit">Answer beside this one</button></div>
    </form>
  </details>`;
}
