import { html, nothing } from "lit-html";
import type { ResponseDetails } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { faultNotice, messageOf } from "./dialogs.ts";
import { statusTag } from "./item-view.ts";
import { show } from "./shown-once.ts";
import { waterfall } from "./waterfall.ts";

/** The types of items by the beginnings of their ids, for an operator, who does not see the items. */
const TYPES: Record<string, string> = {
  ...{ msg: "message", rs: "reasoning", fc: "function_call", ctc: "custom_tool_call", mcp: "mcp_call" },
  ...{ ws: "web_search_call", fs: "file_search_call", ci: "code_interpreter_call", ig: "image_generation_call" },
};

/** Shows where the time of a tenant's response went: `GET /v1/admin/responses/{id}`. */
export async function showTimes(id: string, tenant: string) {
  let details: ResponseDetails | undefined;
  let fault = "";
  try {
    details = await callJson(`/v1/admin/responses/${encodeURIComponent(id)}?${new URLSearchParams({ tenant })}`);
  } catch (error) {
    fault = messageOf(error);
  }
  await show(id, html`${faultNotice(fault)} ${details ? detailsTemplate(details) : nothing}`);
}

function detailsTemplate({ status, model, error, upstream_error: upstream, timing }: ResponseDetails) {
  const output = timing?.items.map(({ id }) => ({ id, type: TYPES[id.split("_")[0] ?? ""] ?? "item" })) ?? [];
  return html`<p>${statusTag(status)} ${model}</p>
    ${error ? html`<p class="note" dir="auto">${error.message}</p>` : nothing}
    ${upstream ? html`<p class="mt-1 font-mono text-xs text-bad" dir="auto"><span class="unseen">The model server said: </span>${upstream}</p>` : nothing}
    ${waterfall({ output }, timing)}`;
}
