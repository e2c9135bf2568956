import type { Citation } from "./citations.ts";
import { readableJson } from "./format.ts";
import type { ApiObject, Parsed } from "./json.ts";

/** Items of a response or of its input, as the parts that the page shows of them. */

/** In the API's form */
export type Item = ApiObject;

/** A text of an item */
export interface Part {
  /** Its key within the item. Events that add text use the same key. */
  key: string;
  label?: string;
  text: string;
  isCode?: boolean;
}

/** The shown parts of an item */
export interface Description {
  title: string;
  /** of the tool */
  name?: string;
  status?: string;
  parts: Part[];
  /** True if its texts are markdown. */
  isMarkdown?: boolean;
  /** True if the item is closed at first. */
  isFolded?: boolean;
  /** `data:` URLs */
  images?: string[];
  links?: { href: string; label: string }[];
  /** files that code has written */
  files?: { id: string; name: string }[];
  /** files that its texts cite */
  citations?: Citation[];
  /** passages of files */
  found?: { filename: string; score: string; text: string }[];
  /** for the style */
  kind: string;
}

const KINDS: Record<string, (item: Item) => Omit<Description, "status">> = {
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

/** The parts of an item that the page shows. An item of an unknown kind is shown as JSON. */
export function describe(item: Item): Description {
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

function roleName(role: unknown) {
  return role === "assistant"
    ? "Assistant"
    : role === "user"
      ? "You"
      : role === "system"
        ? "System"
        : text(role) || "Message";
}

function outputOf(item: Item): Omit<Description, "status"> {
  const { parts, ...rest } = contentOf(item.output);
  return {
    kind: "call",
    title: "Output of a call",
    name: item.call_id,
    ...rest,
    parts: parts.map((part) => ({ ...part, isCode: true })),
  };
}

/** The parts of a message, or of an output: text, or a list. */
function contentOf(content: unknown) {
  if (typeof content === "string") return { parts: [{ key: "content:0", text: content }] };
  const parts: Part[] = [];
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

function code(key: string, label: string, value: unknown): Part {
  return { key, label, text: readableJson(text(value)), isCode: true };
}

function list(value: unknown): Parsed[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "object" && each !== null) : [];
}

function strings(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

function text(value: unknown) {
  return typeof value === "string" ? value : "";
}

function written(value: unknown) {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}
