import type { Parsed } from "./json.ts";
import type { Transport } from "./sending.ts";
/** A request that the user is editing, and the body that is made of it. */

export interface Attachment {
  name: string;
  /** its MIME type */
  type: string;
  /** bytes */
  size: number;
  /** `data:` URL with the whole file; empty if it was uploaded */
  url: string;
  /** id of an uploaded file */
  fileId?: string;
}

export interface McpServer {
  label: string;
  url: string;
  /** a token for the server; a reload deletes it */
  authorization: string;
  /** true if the user approves each call */
  asks: boolean;
}

export interface Draft {
  model: string;
  /** the model that gets the same request, side by side; empty for none */
  secondModel: string;
  instructions: string;
  input: string;
  attachments: Attachment[];
  /** true if Enter sends the request; otherwise Ctrl + Enter sends it */
  enterSends: boolean;
  /** JSON: a list of functions */
  functions: string;
  servers: McpServer[];
  /** types of hosted tools */
  hosted: string[];
  /** ids of the vector stores that `file_search` searches */
  stores: string[];
  /** the maximum number of results */
  searchResults?: number;
  /** JSON */
  searchFilters: string;
  effort: string;
  format: "text" | "json_object" | "json_schema";
  /** JSON */
  schema: string;
  transport: Transport;
  max_output_tokens?: number;
  temperature?: number;
  top_p?: number;
  max_tool_calls?: number;
  /** `auto`, `required`, `none`, or the name of a function; empty for the default */
  tool_choice: string;
  verbosity: string;
  parallelCalls: boolean;
  /** true if the oldest turns may be left out of a full context */
  truncates: boolean;
  store: boolean;
  rawMessages: boolean;
  /** JSON: more fields of the body */
  further: string;
}

/** A field of the form that has an invalid value. */
export class FormFault extends Error {
  field: string;

  /** @param field its id on the page */
  constructor(field: string, message: string) {
    super(message);
    this.name = "FormFault";
    this.field = field;
  }
}

export const FUNCTION_EXAMPLE = `[{
  "name": "get_weather",
  "parameters": {
    "type": "object",
    "properties": { "city": { "type": "string" } },
    "required": ["city"]
  }
}]`;

export const SCHEMA_EXAMPLE = `{
  "type": "object",
  "properties": { "answer": { "type": "string" } },
  "required": ["answer"],
  "additionalProperties": false
}`;

export function emptyDraft(): Draft {
  return {
    model: "",
    secondModel: "",
    instructions: "",
    input: "",
    attachments: [],
    functions: "",
    servers: [],
    hosted: [],
    stores: [],
    searchFilters: "",
    effort: "",
    format: "text",
    schema: "",
    transport: "background",
    tool_choice: "",
    verbosity: "",
    parallelCalls: true,
    truncates: false,
    store: true,
    rawMessages: false,
    further: "",
    // A keyboard on a screen has no Shift + Enter.
    enterSends: !globalThis.matchMedia?.("(pointer: coarse)").matches,
  };
}

/** The fields of a request for a draft, without its input and the transport's fields. Throws a FormFault. */
export function bodyOf(draft: Draft): Record<string, Parsed> {
  const { model, instructions, effort, verbosity, tool_choice: choice, max_output_tokens, max_tool_calls } = draft;
  const { temperature, top_p } = draft;
  const tools = toolsOf(draft);
  const format = formatOf(draft);
  const include = includeOf(draft);
  const fields = {
    model: model || undefined,
    instructions: instructions || undefined,
    tools: tools.length > 0 ? tools : undefined,
    include: include.length > 0 ? include : undefined,
    reasoning: effort ? { effort } : undefined,
    text: format || verbosity ? { ...(format && { format }), ...(verbosity && { verbosity }) } : undefined,
    tool_choice: ["", "auto", "required", "none"].includes(choice)
      ? choice || undefined
      : { type: "function", name: choice },
    ...{ max_output_tokens, max_tool_calls, temperature, top_p },
    parallel_tool_calls: draft.parallelCalls ? undefined : false,
    truncation: draft.truncates ? "auto" : undefined,
    store: draft.store ? undefined : false,
    enable_response_messages: draft.rawMessages || undefined,
    ...furtherOf(draft),
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== ""));
}

/**
 * The typed input as items.
 * @param urlOf gives the URL of an attachment
 */
export function inputOf(
  { input, attachments }: Draft,
  urlOf: (attachment: Attachment) => unknown = ({ url }) => url,
): Record<string, Parsed>[] {
  const files = attachments.map((attachment) =>
    attachment.type.startsWith("image/")
      ? { type: "input_image", image_url: urlOf(attachment), detail: "auto" }
      : attachment.fileId
        ? { type: "input_file", file_id: attachment.fileId, filename: attachment.name }
        : { type: "input_file", filename: attachment.name, file_data: urlOf(attachment) },
  );
  const content =
    files.length === 0 ? input : [...(input === "" ? [] : [{ type: "input_text", text: input }]), ...files];
  return [{ type: "message", role: "user", content }];
}

function toolsOf({
  functions,
  servers,
  hosted,
  stores,
  searchResults,
  searchFilters,
}: Draft): Record<string, unknown>[] {
  return [
    ...functionsIn(functions),
    ...servers
      .filter(({ url }) => url.trim() !== "")
      .map(({ label, url, authorization, asks }) => ({
        type: "mcp",
        server_label: label.trim() || "server",
        server_url: url.trim(),
        ...(authorization && { authorization }),
        require_approval: asks ? "always" : "never",
      })),
    ...(stores.length === 0
      ? []
      : [
          {
            type: "file_search",
            vector_store_ids: stores,
            ...(searchResults && { max_num_results: searchResults }),
            ...(searchFilters.trim() !== "" && { filters: jsonIn("searchFilters", searchFilters) }),
          },
        ]),
    ...hosted.map((type) => (type === "code_interpreter" ? { type, container: { type: "auto" } } : { type })),
  ];
}

/** The fields that an answer shows and has only on request. */
function includeOf({ stores, hosted }: Draft) {
  return [
    ...(stores.length > 0 ? ["file_search_call.results"] : []),
    ...(hosted.includes("code_interpreter") ? ["code_interpreter_call.outputs"] : []),
    ...(hosted.some((type) => type.startsWith("web_search")) ? ["web_search_call.action.sources"] : []),
  ];
}

function functionsIn(text: string): Record<string, unknown>[] {
  if (text.trim() === "") return [];
  const value = jsonIn("functions", text);
  const list = Array.isArray(value) ? value : [value];
  return list.map((each) => {
    if (typeof each !== "object" || each === null)
      throw new FormFault("functions", "Expected a list of functions, each a JSON object.");
    // The form of chat completions is accepted too.
    const flat = typeof each.function === "object" && each.function !== null ? each.function : each;
    const parameters = flat.parameters ?? { type: "object", properties: {} };
    return { type: "function", strict: false, ...flat, parameters };
  });
}

function formatOf({ format, schema }: Draft): Record<string, unknown> | undefined {
  if (format === "text") return undefined;
  if (format === "json_object") return { type: "json_object" };
  const value = jsonIn("schema", schema);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new FormFault("schema", "Expected a JSON schema, an object.");
  return { type: "json_schema", name: "answer", strict: true, schema: value };
}

function furtherOf({ further }: Draft): Record<string, unknown> {
  if (further.trim() === "") return {};
  const value = jsonIn("further", further);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new FormFault("further", "Expected a JSON object of fields.");
  return value;
}

function jsonIn(field: string, text: string): Parsed {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FormFault(field, `This is no JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
