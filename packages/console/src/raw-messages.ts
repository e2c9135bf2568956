import { html, nothing, render } from "lit-html";
import { count } from "./format.ts";
import type { ApiObject } from "./json.ts";
import { LongText } from "./long-text.ts";

/** Messages as a model reads and writes them, in their engine's own form. */

/** Messages that are shown at first and added with each click on "more". */
const PAGE = 50;

export class RawMessages {
  element = document.createElement("div");
  #messages: readonly ApiObject[];
  #shown = PAGE;
  #texts: Map<ApiObject, LongText> = new Map();

  constructor(messages: readonly ApiObject[]) {
    this.element.className = "stack";
    this.#messages = messages;
    this.#draw();
  }

  #draw() {
    const left = this.#messages.length - this.#shown;
    render(
      html`<ol class="stack">${this.#messages.slice(0, this.#shown).map((message) => this.#template(message))}</ol>
        ${left > 0 ? html`<button type="button" @click=${this.#more}>Show ${count(Math.min(PAGE, left))} more</button>` : nothing}`,
      this.element,
    );
  }

  #more = () => {
    this.#shown += PAGE;
    this.#draw();
  };

  #template(message: ApiObject) {
    const { author, role = author?.role, channel, recipient, name = author?.name } = message;
    const text = this.#texts.get(message) ?? new LongText(textOf(message));
    this.#texts.set(message, text);
    return html`<li class="stack gap-1.5">
      <header class="item-heading">
        <span class="font-semibold text-muted">${role ?? "message"}</span>
        ${name ? html`<code>${name}</code>` : nothing} ${channel ? html`<span class="tag">${channel}</span>` : nothing}
        ${recipient ? html`<span class="tag">to ${recipient}</span>` : nothing}
      </header>
      <div class="part code">${text.element}</div>
    </li>`;
  }
}

/** The content of a message, and what else it has: calls, thoughts. */
function textOf({
  content,
  role: _role,
  name: _name,
  author: _author,
  channel: _channel,
  recipient: _recipient,
  ...rest
}: ApiObject) {
  const parts = content == null ? [] : Array.isArray(content) ? content : [content];
  const texts = parts.map((part) => {
    if (typeof part === "string") return part;
    return typeof part?.text === "string" ? part.text : JSON.stringify(part, null, 2);
  });
  const others = Object.entries(rest).filter(
    ([, value]) => value != null && value !== "" && !(Array.isArray(value) && value.length === 0),
  );
  return [...texts, ...others.map(([name, value]) => `${name}: ${JSON.stringify(value, null, 2)}`)].join("\n");
}
