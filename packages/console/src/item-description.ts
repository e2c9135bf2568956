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
  /** the program that has made the call, or the agent that the item belongs to */
  by?: string;
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

const KINDS: Record<string, (item: Item) => Omit<Description, "status" | "by">> = {
  message: (item) => ({
    kind: item.role === "assistant" ? "answer" : "input",
    title: ROLES[item.role] ?? (text(item.role) || "Message"),
    name: item.phase === "commentary" ? "commentary" : undefined,
    isMarkdown: item.role === "assistant",
    ...contentOf(item.content),
  }),
  reasoning: (item) => ({
    kind: "reasoning",
    title: "Reasoning",
    isFolded: true,
    parts: [
      ...list(item.summary).map((part, at) => ({ key: `summary:${at}`, label: "Summary", text: text(part.text) })),
      ...list(item.content).map((part, index) => ({ key: `content:${index}`, text: text(part.text) })),
      ...(item.encrypted_content
        ? [{ key: "sealed", label: "Encrypted", text: text(item.encrypted_content), isCode: true }]
        : []),
    ],
  }),
  function_call: ({ namespace, name, arguments: args }) =>
    call("Function call", namespace ? `${namespace}.${name}` : name, code("arguments", "Arguments", args)),
  custom_tool_call: ({ name, input }) => call("Custom tool call", name, code("arguments", "Input", input)),
  program: ({ code: text }) => call("Program", undefined, code("code", "", text)),
  program_output: ({ status, result }) =>
    call(`${status === "incomplete" ? "Fault" : "Output"} of a program`, undefined, code("result", "", result)),
  multi_agent_call: ({ action, arguments: args }) =>
    call("Call of agents", text(action), code("arguments", "Arguments", args)),
  multi_agent_call_output: ({ action, output }) => ({
    ...contentOf(output),
    ...call("Output of agents", text(action), ...contentOf(output).parts.map((part) => ({ ...part, isCode: true }))),
  }),
  agent_message: ({ author, recipient, content }) => ({
    ...contentOf(content),
    kind: "other",
    title: "Message of an agent",
    name: `${text(author)} → ${text(recipient)}`,
  }),
  function_call_output: outputOf,
  custom_tool_call_output: outputOf,
  mcp_call: ({ server_label: server, name, arguments: args, output, error }) =>
    call(
      "MCP call",
      `${server}.${name}`,
      code("arguments", "Arguments", args),
      output != null && code("output", "Output", output),
      error != null && code("error", "Error", written(error)),
    ),
  mcp_list_tools: (item) => ({
    kind: "tools",
    title: "Tools of an MCP server",
    name: `${item.server_label}: ${list(item.tools).length}`,
    isFolded: true,
    parts: [
      ...list(item.tools).map((tool, at) => ({
        key: `tool:${at}`,
        label: text(tool.name),
        text: text(tool.description),
      })),
      ...(item.error == null ? [] : [code("error", "Error", written(item.error))]),
    ],
  }),
  mcp_approval_request: ({ server_label: server, name, arguments: args }) =>
    call("Asks for approval", `${server}.${name}`, code("arguments", "Arguments", args)),
  mcp_approval_response: (item) => ({
    kind: "input",
    title: item.approve ? "Approved" : "Denied",
    parts: item.reason ? [{ key: "reason", text: text(item.reason) }] : [],
  }),
  web_search_call: ({ action }) => ({
    ...call("Web search", action?.type, action && code("action", "Action", written({ ...action, sources: undefined }))),
    links: list(action?.sources).map(({ url }) => ({ href: text(url), label: text(url) })),
  }),
  file_search_call: (item) => ({
    ...call("File search", undefined, code("queries", "Queries", strings(item.queries).join("\n"))),
    found: list(item.results).map(({ filename, file_id: id, score, text: passage }) => ({
      filename: text(filename) || text(id),
      score: typeof score === "number" ? score.toFixed(3) : "–",
      text: text(passage),
    })),
  }),
  image_generation_call: ({ size, revised_prompt: prompt, error, result, output_format: format }) => ({
    ...call(
      "Image",
      size,
      prompt && { key: "prompt", label: "Prompt", text: text(prompt) },
      error && code("error", "Error", text(error.message)),
    ),
    images: result ? [`data:image/${text(format) || "png"};base64,${result}`] : [],
  }),
  code_interpreter_call: (item) =>
    call(
      "Python",
      undefined,
      code("arguments", "Code", item.code),
      ...list(item.outputs).map((output, index) =>
        code(`output:${index}`, "Output", typeof output.logs === "string" ? output.logs : written(output)),
      ),
    ),
};

/** The parts of an item that the page shows. An item of an unknown kind is shown as JSON. */
export function describe(item: Item): Description {
  const { status } = item;
  const kind = Object.hasOwn(KINDS, item.type) ? KINDS[item.type] : undefined;
  // An item with a role and content is a message also without a type.
  const known = kind ?? (item.type === undefined && item.role !== undefined ? KINDS.message : undefined);
  const by = item.caller?.type === "program" ? "program" : otherAgentOf(item);
  if (known) return { status, by, ...known(item) };
  return {
    kind: "other",
    title: text(item.type) || "Item",
    status,
    by,
    isFolded: true,
    parts: [code("json", "", written(item))],
  };
}

/** The agent that an item belongs to, if that is not the one that the user asks. */
function otherAgentOf({ agent }: Item): string | undefined {
  const name = text(agent?.agent_name);
  return name === "" || name === "/root" ? undefined : name;
}

const ROLES: Record<string, string> = { assistant: "Assistant", user: "You", system: "System" };

/** A call of a tool. @param parts those that it has */
function call(title: string, name: string | undefined, ...parts: (Part | false | undefined | null | "")[]) {
  return { kind: "call", title, name, parts: parts.filter((part) => !!part) };
}

function outputOf(item: Item): Omit<Description, "status" | "by"> {
  const { parts, ...rest } = contentOf(item.output);
  return { ...rest, ...call("Output of a call", item.call_id, ...parts.map((part) => ({ ...part, isCode: true }))) };
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
      const name = text(part.filename) || text(part.file_id) || text(part.file_url);
      parts.push({ key, label: "File", text: name, isCode: true });
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
