import { html, nothing, render } from "lit-html";
import type { ResponsePrompt } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { faultNotice, messageOf } from "./dialogs.ts";
import { count } from "./format.ts";
import type { ApiObject } from "./json.ts";
import { figures } from "./list-and-one.ts";
import { LongText } from "./long-text.ts";
import { RawMessages } from "./raw-messages.ts";

/** The messages, tools and parameters that the model got for a response: `GET /v1/responses/{id}/prompt`. It is asked for when somebody opens it. */
export class PromptView {
  element = document.createElement("details");
  #id: string;
  #fault = "";
  #prompt: ResponsePrompt | undefined;
  #inner = document.createElement("div");
  /** The elements of its long texts. */
  #texts: { messages: HTMLElement; tools: HTMLElement; rendered: HTMLElement } | undefined;

  constructor(id: string) {
    this.#id = id;
    this.element.className = "card";
    this.#inner.className = "stack inner";
    render(html`<summary><h2>What the model got</h2></summary>${this.#inner}`, this.element);
    this.element.addEventListener("toggle", () => {
      if (this.element.open && !this.#prompt) void this.#load();
    });
  }

  async #load() {
    this.#fault = "";
    this.#draw();
    try {
      const prompt: ResponsePrompt = await callJson(`/v1/responses/${encodeURIComponent(this.#id)}/prompt`);
      this.#texts = {
        messages: new RawMessages(prompt.messages ?? []).element,
        tools: longJson(prompt.tools, "tools.json"),
        rendered: new LongText(prompt.rendered ?? "", { fileName: "prompt.txt" }).element,
      };
      this.#prompt = prompt;
    } catch (error) {
      this.#fault = messageOf(error);
    }
    this.#draw();
  }

  #draw() {
    render(
      html`${faultNotice(this.#fault)}
      ${this.#prompt ? this.#template(this.#prompt) : this.#fault ? nothing : html`<p class="note">Loading…</p>`}`,
      this.#inner,
    );
  }

  #template({ server, model, messages, tools, parameters, rendered, rendered_by: by, raw }: ResponsePrompt) {
    const values = Object.entries(parameters).filter(([, value]) => value != null);
    const { messages: list, tools: offered, rendered: text } = this.#texts ?? {};
    return html`
      ${figures([
        ["Model", model],
        ["Model server", server ?? "–"],
        ...values.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)] as const),
      ])}
      <h3>Messages</h3>
      <p class="note">${raw ? "As they were kept with the response." : "As the model server was sent them first, made again from what is stored."}</p>
      ${messages?.length ? list : html`<p class="note">They cannot be made again: the response runs, or a part of its history was deleted.</p>`}
      <h3>Tools</h3>
      ${tools.length > 0 ? html`<details><summary>${count(tools.length)} ${tools.length === 1 ? "tool" : "tools"}: ${tools.map(nameOf).join(", ")}</summary>${offered}</details>` : html`<p class="note">None.</p>`}
      ${rendered ? html`<h3>The prompt as text</h3><p class="note">${by === "gateway" ? "Rendered by this gateway." : "Rendered by the model server, with its chat template."}</p><div class="part code">${text}</div>` : nothing}
    `;
  }
}

function nameOf({ name, function: called, type }: ApiObject): string {
  return called?.name ?? name ?? String(type);
}

function longJson(value: unknown, fileName: string) {
  const { element } = new LongText(JSON.stringify(value ?? null, null, 2), { fileName, dir: "ltr" });
  const part = document.createElement("div");
  part.className = "part code";
  part.append(element);
  return part;
}
