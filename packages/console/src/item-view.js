import { html, nothing, render } from "lit-html";
import { announce } from "./announce.js";
import { Sources } from "./citations.js";
import { messageOf } from "./dialogs.js";
import { beginning, duration, isWebPage, readableJson } from "./format.js";
import { LongText } from "./long-text.js";
import { MarkdownText } from "./markdown-text.js";
import { passageText } from "./passage.js";
import { saveFile } from "./save.js";

/**
 * An item of a response or of its input, on the page. Texts of tools are shown as plain text. Texts of models use only
 * the elements that `markdown-view.js` makes. No HTML in a text takes effect, and no image is loaded from another site.
 *
 * @typedef {Record<string, any>} Item In the API's form
 *
 * @typedef {object} Part A text of an item
 * @property {string} key Its key within the item. Events that add text use the same key.
 * @property {string} [label]
 * @property {string} text
 * @property {boolean} [isCode]
 *
 * @typedef {object} Description The shown parts of an item
 * @property {string} title
 * @property {string} [name] of the tool
 * @property {string} [status]
 * @property {Part[]} parts
 * @property {boolean} [isMarkdown] True if its texts are markdown.
 * @property {boolean} [isFolded] True if the item is closed at first.
 * @property {string[]} [images] `data:` URLs
 * @property {{ href: string, label: string }[]} [links]
 * @property {{ id: string, name: string }[]} [files] files that code has written
 * @property {import("./citations.js").Citation[]} [citations] files that its texts cite
 * @property {{ filename: string, score: string, text: string }[]} [found] passages of files
 * @property {string} kind for the style
 */

/** The maximum number of links shown for one item. For more, the page shows their number. */
const MAX_LINKS = 50;

/** @type {Record<string, (item: Item) => Omit<Description, "status">>} */
const KINDS = {
  message: (item) => ({
    kind: item.role === "assistant" ? "answer" : "input",
    title: roleName(item.role),
    name: item.phase === "commentary" ? "commentary" : undefined,
    isMarkdown: item.role === "assistant",
    ...contentOf(item.content),
  }),
  reasoning: (item) => ({
    kind: "reasoning",
    title: "Reasoning",
    isFolded: true,
    parts: [
      ...list(item.summary).map((part, index) => ({
        key: `summary:${index}`,
        label: "Summary",
        text: text(part.text),
      })),
      ...list(item.content).map((part, index) => ({ key: `content:${index}`, text: text(part.text) })),
      ...(item.encrypted_content
        ? [{ key: "sealed", label: "Encrypted", text: text(item.encrypted_content), isCode: true }]
        : []),
    ],
  }),
  function_call: (item) => ({
    kind: "call",
    title: "Function call",
    name: item.namespace ? `${item.namespace}.${item.name}` : item.name,
    parts: [code("arguments", "Arguments", item.arguments)],
  }),
  custom_tool_call: (item) => ({
    kind: "call",
    title: "Custom tool call",
    name: item.name,
    parts: [code("arguments", "Input", item.input)],
  }),
  function_call_output: outputOf,
  custom_tool_call_output: outputOf,
  mcp_call: (item) => ({
    kind: "call",
    title: "MCP call",
    name: `${item.server_label}.${item.name}`,
    parts: [
      code("arguments", "Arguments", item.arguments),
      ...(item.output == null ? [] : [code("output", "Output", item.output)]),
      ...(item.error == null ? [] : [code("error", "Error", written(item.error))]),
    ],
  }),
  mcp_list_tools: (item) => ({
    kind: "tools",
    title: "Tools of an MCP server",
    name: `${item.server_label}: ${list(item.tools).length}`,
    isFolded: true,
    parts: [
      ...list(item.tools).map((tool, index) => ({
        key: `tool:${index}`,
        label: text(tool.name),
        text: text(tool.description),
      })),
      ...(item.error == null ? [] : [code("error", "Error", written(item.error))]),
    ],
  }),
  mcp_approval_request: (item) => ({
    kind: "call",
    title: "Asks for approval",
    name: `${item.server_label}.${item.name}`,
    parts: [code("arguments", "Arguments", item.arguments)],
  }),
  mcp_approval_response: (item) => ({
    kind: "input",
    title: item.approve ? "Approved" : "Denied",
    parts: item.reason ? [{ key: "reason", text: text(item.reason) }] : [],
  }),
  web_search_call: (item) => ({
    kind: "call",
    title: "Web search",
    name: item.action?.type,
    parts: item.action ? [code("action", "Action", written({ ...item.action, sources: undefined }))] : [],
    links: list(item.action?.sources).map(({ url }) => ({ href: text(url), label: text(url) })),
  }),
  file_search_call: (item) => ({
    kind: "call",
    title: "File search",
    parts: [code("queries", "Queries", strings(item.queries).join("\n"))],
    found: list(item.results).map(({ filename, file_id: id, score, text: passage }) => ({
      filename: text(filename) || text(id),
      score: typeof score === "number" ? score.toFixed(3) : "–",
      text: text(passage),
    })),
  }),
  image_generation_call: (item) => ({
    kind: "call",
    title: "Image",
    name: item.size,
    parts: [
      ...(item.revised_prompt ? [{ key: "prompt", label: "Prompt", text: text(item.revised_prompt) }] : []),
      ...(item.error ? [code("error", "Error", text(item.error.message))] : []),
    ],
    images: item.result ? [`data:image/${text(item.output_format) || "png"};base64,${item.result}`] : [],
  }),
  code_interpreter_call: (item) => ({
    kind: "call",
    title: "Python",
    parts: [
      code("arguments", "Code", item.code),
      ...list(item.outputs).map((output, index) =>
        code(`output:${index}`, "Output", typeof output.logs === "string" ? output.logs : written(output)),
      ),
    ],
  }),
};

/** @param {Item} item @returns {Description} */
function describe(item) {
  const { status } = item;
  const kind = Object.hasOwn(KINDS, item.type) ? KINDS[item.type] : undefined;
  // An item with a role and content is a message also without a type.
  const known = kind ?? (item.type === undefined && item.role !== undefined ? KINDS.message : undefined);
  if (known) return { status, ...known(item) };
  return {
    kind: "other",
    title: text(item.type) || "Item",
    status,
    isFolded: true,
    parts: [code("json", "", written(item))],
  };
}

/** @param {unknown} role */
function roleName(role) {
  return role === "assistant"
    ? "Assistant"
    : role === "user"
      ? "You"
      : role === "system"
        ? "System"
        : text(role) || "Message";
}

/** @param {Item} item @returns {Omit<Description, "status">} */
function outputOf(item) {
  const { parts, ...rest } = contentOf(item.output);
  return {
    kind: "call",
    title: "Output of a call",
    name: item.call_id,
    ...rest,
    parts: parts.map((part) => ({ ...part, isCode: true })),
  };
}

/** The parts of a message, or of an output: text, or a list. @param {unknown} content */
function contentOf(content) {
  if (typeof content === "string") return { parts: [{ key: "content:0", text: content }] };
  /** @type {Part[]} */
  const parts = [];
  const images = [];
  const links = [];
  const files = [];
  const citations = [];
  for (const [index, part] of list(content).entries()) {
    const key = `content:${index}`;
    if (part.type === "input_image") {
      const url = text(part.image_url);
      if (url.startsWith("data:image/")) images.push(url);
      else parts.push({ key, label: "Image", text: url, isCode: true });
    } else if (part.type === "input_file") {
      parts.push({
        key,
        label: "File",
        text: text(part.filename) || text(part.file_id) || text(part.file_url),
        isCode: true,
      });
    } else if (part.type === "refusal") parts.push({ key, label: "Refusal", text: text(part.refusal) });
    else if (typeof part.text === "string") parts.push({ key, text: part.text });
    else parts.push({ key, label: text(part.type), text: written(part), isCode: true });
    for (const { type, url, title, file_id: fileId, filename, index: at } of list(part.annotations)) {
      if (type === "url_citation") links.push({ href: text(url), label: text(title) || text(url) });
      if (type === "container_file_citation") files.push({ id: text(fileId), name: text(filename) || text(fileId) });
      if (type === "file_citation" && typeof at === "number")
        citations.push({ key, index: at, fileId: text(fileId), filename: text(filename) || text(fileId) });
    }
  }
  return { parts, images, links, files, citations };
}

/** @param {string} key @param {string} label @param {unknown} value @returns {Part} */
function code(key, label, value) {
  return { key, label, text: readableJson(text(value)), isCode: true };
}

/** @param {unknown} value @returns {any[]} */
function list(value) {
  return Array.isArray(value) ? value.filter((each) => typeof each === "object" && each !== null) : [];
}

/** @param {unknown} value @returns {string[]} */
function strings(value) {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

/** @param {unknown} value */
function text(value) {
  return typeof value === "string" ? value : "";
}

/** @param {unknown} value */
function written(value) {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}

/** @param {string | undefined} status */
export function statusTag(status) {
  if (!status) return nothing;
  const isGood = ["completed", "delivered"].includes(status);
  const look = isGood ? "good" : ["failed", "cancelled", "expired", "incomplete"].includes(status) ? "bad" : "busy";
  return html`<span class="tag ${look}">${status.replaceAll("_", " ")}</span>`;
}

/** The beginning of JSON, which is shown as it is written. */
const JSON_BEGINNING = /^\s*(?:\{|\[\s*[[{"\d\]])/;

/** How often the time of a thought that goes on is told anew, milliseconds. */
const TICK_MS = 500;

/** Which text of its item an event adds to, by the event's type. @type {Record<string, (event: Item) => string>} */
const DELTAS = {
  "response.output_text.delta": (event) => `content:${event.content_index}`,
  "response.refusal.delta": (event) => `content:${event.content_index}`,
  "response.reasoning_text.delta": (event) => `content:${event.content_index}`,
  "response.reasoning_summary_text.delta": (event) => `summary:${event.summary_index}`,
  "response.function_call_arguments.delta": () => "arguments",
  "response.mcp_call_arguments.delta": () => "arguments",
  "response.custom_tool_call_input.delta": () => "arguments",
  "response.code_interpreter_call_code.delta": () => "arguments",
};

export class ItemView {
  element = document.createElement("article");
  /** @type {Item} */
  #item;
  /** @type {Map<string, LongText | MarkdownText>} */
  #texts = new Map();
  /** Parts that events have begun, and the item does not have yet. @type {Set<string>} */
  #begun = new Set();
  /** True if somebody has opened it, false if closed. @type {boolean | undefined} */
  #isOpen;
  /** True if markdown is shown as it is written. */
  #isRaw = false;
  /** When its first event came, where it is still being made; milliseconds of this page. @type {number | undefined} */
  #since;
  /** How long it took, in milliseconds, where the page has seen it being made. @type {number | undefined} */
  #took;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #tick;
  #sources;

  /**
   * @param {Item} item
   * @param {import("./citations.js").Around} [around] the response that it is of
   * @param {boolean} [isLive] whether it is being made now
   */
  constructor(item, around = { items: () => [], response: () => undefined }, isLive = false) {
    this.#item = item;
    this.#sources = new Sources(around);
    if (isLive) this.#since = performance.now();
    this.#draw();
  }

  get item() {
    return this.#item;
  }

  /** Takes the item as it is now, when it is whole. @param {Item} item */
  set(item) {
    this.#item = item;
    this.#begun.clear();
    if (this.#since !== undefined) this.#took = performance.now() - this.#since;
    this.#since = undefined;
    this.#draw();
  }

  /** Takes an event of the item's; others than deltas say nothing that the item will not say. @param {Item} event */
  apply(event) {
    if (!Object.hasOwn(DELTAS, event.type) || typeof event.delta !== "string") return;
    const key = DELTAS[event.type]?.(event) ?? "";
    const known = this.#texts.get(key);
    const into = this.#textOf(key, event.delta);
    into.append(event.delta);
    if (!known || !this.#begun.has(key)) {
      this.#begun.add(key);
      this.#draw();
    }
  }

  /** The text of a part. `beginning`: how a new one begins. @param {string} key @param {string} beginning @param {boolean} [isCode] */
  #textOf(key, beginning, isCode = false) {
    const known = this.#texts.get(key);
    if (known) return known;
    const isMarkdown = describe(this.#item).isMarkdown && !isCode && !this.#isRaw && !JSON_BEGINNING.test(beginning);
    const name = this.#item.id ?? "item";
    const made = isMarkdown ? new MarkdownText(`${name}.md`) : new LongText("", { fileName: `${name}.txt` });
    this.#texts.set(key, made);
    return made;
  }

  /** Shows markdown as it is written, or as what it means. */
  #toggleRaw = () => {
    this.#isRaw = !this.#isRaw;
    const texts = [...this.#texts].map(([key, text]) => /** @type {const} */ ([key, text.text()]));
    this.#texts.clear();
    for (const [key, whole] of texts) this.#textOf(key, whole).append(whole);
    this.#draw();
  };

  #draw() {
    const { title, name, status, kind, parts, isFolded = false, isMarkdown = false, ...rest } = describe(this.#item);
    const { images = [], links = [], files = [], citations = [], found = [] } = rest;
    this.element.className = `item item-${kind}`;
    const shown = [...parts];
    for (const key of this.#begun) {
      if (!shown.some((part) => part.key === key)) shown.push({ key, text: "", isCode: key === "arguments" });
    }
    const partTemplates = shown.map((part) => this.#partTemplate(part, citations));
    const heading = html`<span class="item-title">${title}</span>${name ? html` <code class="item-name" dir="auto">${beginning(name, 200)}</code>` : nothing}
      ${status && status !== "completed" ? statusTag(status) : nothing}
      ${this.#timeTemplate(kind)}
      ${
        isMarkdown && (this.#isRaw || [...this.#texts.values()].some((each) => each instanceof MarkdownText))
          ? html`<button type="button" class="plain raw-switch" aria-pressed=${this.#isRaw} @click=${this.#toggleRaw}>As written</button>`
          : nothing
      }`;
    const body = html`
      ${partTemplates}
      ${this.#sources.element}
      ${found.slice(0, MAX_LINKS).map(foundTemplate)}
      ${images.map((url) => html`<img class="item-image" src=${url} alt="Image" />`)}
      ${links.length > 0 ? html`<ul class="links">${links.slice(0, MAX_LINKS).map(linkTemplate)}</ul>` : nothing}
      ${files.length > 0 ? html`<ul class="links">${files.slice(0, MAX_LINKS).map(fileTemplate)}</ul>` : nothing}
      ${links.length > MAX_LINKS ? html`<p class="note">and ${links.length - MAX_LINKS} more</p>` : nothing}
    `;
    render(
      isFolded
        ? html`<details ?open=${this.#isOpen ?? this.#since !== undefined} @toggle=${this.#toggled}><summary>${heading}</summary>${body}</details>`
        : html`<header class="item-heading">${heading}</header>${body}`,
      this.element,
    );
  }

  /** @param {Event} event */
  #toggled = (event) => {
    const { open } = /** @type {HTMLDetailsElement} */ (event.currentTarget);
    // Drawing opens and closes it, too.
    if (open !== (this.#isOpen ?? this.#since !== undefined)) this.#isOpen = open;
  };

  /** How long a thought has taken. @param {string} kind */
  #timeTemplate(kind) {
    if (kind !== "reasoning") return nothing;
    const took = this.#took ?? (this.#since === undefined ? undefined : performance.now() - this.#since);
    if (this.#since !== undefined) {
      this.#tick ??= setTimeout(() => {
        this.#tick = undefined;
        if (this.#since !== undefined && this.element.isConnected) this.#draw();
      }, TICK_MS);
    }
    return took === undefined ? nothing : html`<span class="note">${duration(took)}</span>`;
  }

  /** @param {Part} part @param {import("./citations.js").Citation[]} citations */
  #partTemplate({ key, label, text: whole, isCode }, citations) {
    const long = this.#textOf(key, whole, isCode);
    // Streamed text is there already; while it is, the item has less of it.
    if (!this.#begun.has(key)) {
      long.set(whole);
      const own = citations.filter((each) => each.key === key);
      if (own.length > 0) long.insert(this.#sources.take(own, whole));
    }
    return html`<div class=${isCode ? "part code" : "part"}>${label ? html`<p class="part-label">${label}</p>` : nothing}${long.element}</div>`;
  }
}

/** @param {{ filename: string, score: string, text: string }} found */
function foundTemplate({ filename, score, text: passage }) {
  return html`<details class="found-passage">
    <summary><bdi class="file-name">${filename}</bdi> <span class="tag">score ${score}</span></summary>
    ${passageText(passage, [])}
  </details>`;
}

/** A file that code has written. @param {{ id: string, name: string }} file */
function fileTemplate({ id, name }) {
  /** @param {Event} event */
  async function save(event) {
    const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
    button.disabled = true;
    await saveFile(id, name).catch((error) => announce(messageOf(error)));
    button.disabled = false;
  }
  return html`<li><button type="button" dir="auto" @click=${save}>Save ${beginning(name, 300)}</button></li>`;
}

/** @param {{ href: string, label: string }} link */
function linkTemplate({ href, label }) {
  const shown = beginning(label, 300);
  return isWebPage(href)
    ? html`<li dir="auto"><a href=${href} target="_blank" rel="noopener noreferrer nofollow">${shown}</a></li>`
    : html`<li dir="auto">${shown}</li>`;
}
