import { html, nothing, render } from "lit-html";
import { callJson } from "./api.ts";
import type { Item } from "./item-description.ts";
import { ItemView } from "./item-view.ts";
import type { ApiObject } from "./json.ts";

/** The texts of a turn: its own input, and its output. */

/** Items of the input that are shown. The response's view has the rest. */
const MAX_INPUT_ITEMS = 100;

/**
 * Loads a turn's items and puts them into an element. The element shows a failure.
 * @param id of the response
 */
export async function showTurnItems(element: HTMLElement, id: string, signal: AbortSignal) {
  const path = `/v1/responses/${encodeURIComponent(id)}`;
  render(html`<p class="note">Loading…</p>`, element);
  try {
    const [input, response] = await Promise.all([
      callJson(`${path}/input_items?order=asc&limit=${MAX_INPUT_ITEMS}`, { signal }),
      callJson(path, { signal }),
    ]);
    const rest = input.has_more
      ? html`<p class="note">The input has more items: <a href=${`#/responses/${id}`}>look at all of it</a>.</p>`
      : nothing;
    render(html`${elementsOf(input.data)}${rest}${elementsOf(response.output, response)}${errorOf(response)}`, element);
  } catch (error) {
    if (signal.aborted) return;
    const message = error instanceof Error ? error.message : String(error);
    render(html`<p class="notice bad" dir="auto" role="alert">${message}</p>`, element);
  }
}

/**
 * The words of a turn, as texts. Rejects as a call of the API does.
 * @param id of the response
 */
export async function turnText(id: string, signal: AbortSignal): Promise<{ input: string; output: string }> {
  const path = `/v1/responses/${encodeURIComponent(id)}`;
  const [input, response] = await Promise.all([
    callJson(`${path}/input_items?order=asc&limit=${MAX_INPUT_ITEMS}`, { signal }),
    callJson(path, { signal }),
  ]);
  return { input: textOf(input.data), output: textOf(response.output) };
}

/** The texts of messages, and of other items what they say. */
function textOf(items: ApiObject[]) {
  const texts = items.flatMap(({ content, arguments: args, output }) => {
    if (typeof content === "string") return [content];
    if (Array.isArray(content)) return content.map((part) => part.text ?? part.refusal ?? "");
    return [args, output].filter((text) => typeof text === "string");
  });
  return texts.filter((text) => text !== "").join("\n\n");
}

/** @param response that they are of */
function elementsOf(items: Item[], response?: ApiObject) {
  return items.map((item) => new ItemView(item, { items: () => items, response: () => response }).element);
}

function errorOf({ error }: { error: { message: string } | null }) {
  return error ? html`<p class="notice bad" dir="auto">${error.message}</p>` : nothing;
}
