import { html, nothing } from "lit-html";
import { growingList } from "./growing-list.ts";
import type { ApiObject, Parsed } from "./json.ts";
import { LongText } from "./long-text.ts";

/** Messages that are shown at first and added with each click on "more". */
const PAGE = 50;

/** Messages as a model reads and writes them, in their engine's own form. */
export function rawMessages(messages: readonly ApiObject[]): HTMLElement {
  return growingList(messages, PAGE, (message) => {
    const {
      author,
      role = author?.role ?? "message",
      name = author?.name,
      channel,
      recipient,
      content,
      ...rest
    } = message;
    return html`<article class="stack gap-1.5">
      <header class="item-heading">
        <span class="font-semibold text-muted">${role}</span>
        ${name ? html`<code>${name}</code>` : nothing} ${channel ? html`<span class="tag">${channel}</span>` : nothing}
        ${recipient ? html`<span class="tag">to ${recipient}</span>` : nothing}
      </header>
      <div class="part code">${new LongText(textOf(content, rest)).element}</div>
    </article>`;
  });
}

/** The content of a message, and what else it has: calls, thoughts. */
function textOf(content: Parsed, rest: ApiObject) {
  const texts = [content ?? []].flat().map((part: ApiObject | string) => {
    if (typeof part === "string") return part;
    return typeof part.text === "string" ? part.text : JSON.stringify(part, null, 2);
  });
  const others = Object.entries(rest).filter(([, value]) => value != null && value !== "" && value.length !== 0);
  return [...texts, ...others.map(([name, value]) => `${name}: ${JSON.stringify(value, null, 2)}`)].join("\n");
}
