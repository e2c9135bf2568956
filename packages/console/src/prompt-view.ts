import { html, nothing } from "lit-html";
import { until } from "lit-html/directives/until.js";
import type { ResponsePrompt } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { faultNotice, messageOf } from "./dialogs.ts";
import { foldedPart } from "./folded-part.ts";
import { count } from "./format.ts";
import type { ApiObject } from "./json.ts";
import { figures } from "./list-and-one.ts";
import { LongText } from "./long-text.ts";
import { rawMessages } from "./raw-messages.ts";

/** The messages, tools and parameters that the model got for a response. They are asked for when somebody opens them. */
export function promptCard(id: string) {
  const path = `/v1/responses/${encodeURIComponent(id)}/prompt`;
  const content = () => {
    const read = callJson(path).then(promptTemplate, (error) => faultNotice(messageOf(error)));
    return html`<div class="stack">${until(read, html`<p class="note">Loading…</p>`)}</div>`;
  };
  return foldedPart(html`<h2>What the model got</h2>`, content);
}

function promptTemplate({
  server,
  model,
  messages,
  tools,
  parameters,
  rendered,
  rendered_by: by,
  raw,
}: ResponsePrompt) {
  const values = Object.entries(parameters).filter(([, value]) => value != null);
  const offered = foldedPart(
    `${count(tools.length)} ${tools.length === 1 ? "tool" : "tools"}: ${tools.map(nameOf).join(", ")}`,
    () => codeText(JSON.stringify(tools, null, 2), "tools.json", "ltr"),
    "",
  );
  return html`
    ${figures([
      ["Model", model],
      ["Model server", server ?? "–"],
      ...values.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)] as const),
    ])}
    <h3>Messages</h3>
    <p class="note">${raw ? "As they were kept with the response." : "As the model server was sent them first, made again from what is stored."}</p>
    ${messages?.length ? rawMessages(messages) : html`<p class="note">They cannot be made again: the response runs, or a part of its history was deleted.</p>`}
    <h3>Tools</h3>
    ${tools.length > 0 ? offered : html`<p class="note">None.</p>`}
    ${rendered ? html`<h3>The prompt as text</h3><p class="note">${by === "gateway" ? "Rendered by this gateway." : "Rendered by the model server, with its chat template."}</p>${codeText(rendered, "prompt.txt")}` : nothing}
  `;
}

function nameOf({ name, function: called, type }: ApiObject): string {
  return called?.name ?? name ?? String(type);
}

function codeText(text: string, fileName: string, dir?: "ltr") {
  return html`<div class="part code">${new LongText(text, { fileName, dir }).element}</div>`;
}
