import { type Field, FormFault, jsonIn } from "./fields.ts";
import type { ApiObject } from "./json.ts";
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

/** The fields of the form that have JSON. */
export const JSON_FIELDS = {
  functions: { name: "functions", label: "Functions (JSON)", kind: "code", example: FUNCTION_EXAMPLE },
  searchFilters: { name: "searchFilters", label: "Filters (JSON)", kind: "code" },
  schema: { name: "schema", label: "Schema", kind: "code", example: SCHEMA_EXAMPLE },
  further: { name: "further", label: "Further fields (JSON)", kind: "code" },
} as const satisfies Record<string, Field>;

export type Draft = ReturnType<typeof emptyDraft>;

export function emptyDraft() {
  return {
    model: "",
    /** the model that gets the same request, side by side; empty for none */
    secondModel: "",
    instructions: "",
    input: "",
    attachments: [] as Attachment[],
    /** JSON: a list of functions */
    functions: "",
    servers: [] as McpServer[],
    /** types of hosted tools */
    hosted: [] as string[],
    /** ids of the vector stores that `file_search` searches */
    stores: [] as string[],
    /** the maximum number of results */
    searchResults: undefined as number | undefined,
    /** JSON */
    searchFilters: "",
    effort: "",
    format: "text" as "text" | "json_object" | "json_schema",
    /** JSON */
    schema: "",
    transport: "background" as Transport,
    max_output_tokens: undefined as number | undefined,
    temperature: undefined as number | undefined,
    top_p: undefined as number | undefined,
    max_tool_calls: undefined as number | undefined,
    /** `auto`, `required`, `none`, or the name of a function; empty for the default */
    tool_choice: "",
    verbosity: "",
    parallelCalls: true,
    /** true if the oldest turns may be left out of a full context */
    truncates: false,
    store: true,
    rawMessages: false,
    /** JSON: more fields of the body */
    further: "",
    /** true if Enter sends the request; otherwise Ctrl + Enter sends it. A keyboard on a screen has no Shift + Enter. */
    enterSends: !globalThis.matchMedia?.("(pointer: coarse)").matches,
  };
}

/** The fields of a request for a draft, without its input and the transport's fields. Throws a FormFault. */
export function bodyOf(draft: Draft): ApiObject {
  const { model, instructions, effort, verbosity, tool_choice: choice, max_output_tokens, max_tool_calls } = draft;
  const { temperature, top_p, further } = draft;
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
    ...(further.trim() !== "" && jsonIn(further, JSON_FIELDS.further, true)),
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== ""));
}

/** A draft without what is neither a setting nor to be kept: the input, and the tokens of MCP servers. */
export function settingsOf({ input: _, attachments: __, enterSends: ___, ...settings }: Draft) {
  return { ...settings, servers: settings.servers.map((server) => ({ ...server, authorization: "" })) };
}

/**
 * The typed input as items.
 * @param urlOf gives the URL of an attachment
 */
export function inputOf(
  { input, attachments }: Draft,
  urlOf: (attachment: Attachment) => unknown = ({ url }) => url,
): ApiObject[] {
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

function toolsOf({ functions, servers, hosted, stores, searchResults, searchFilters }: Draft): ApiObject[] {
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
            ...(searchFilters.trim() !== "" && { filters: jsonIn(searchFilters, JSON_FIELDS.searchFilters) }),
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

/** The functions of a JSON text. The form of chat completions is accepted too. Throws a FormFault. */
export function functionsIn(text: string): ApiObject[] {
  if (text.trim() === "") return [];
  return [jsonIn(text, JSON_FIELDS.functions)].flat().map((each) => {
    if (typeof each !== "object" || each === null)
      throw new FormFault("functions", "Expected a list of functions, each a JSON object.");
    const { function: own, ...rest } = each;
    const flat = { ...rest, ...own };
    return {
      type: "function",
      strict: false,
      ...flat,
      parameters: flat.parameters ?? { type: "object", properties: {} },
    };
  });
}

function formatOf({ format, schema }: Draft): ApiObject | undefined {
  if (format === "text") return undefined;
  if (format === "json_object") return { type: "json_object" };
  return { type: "json_schema", name: "answer", strict: true, schema: jsonIn(schema, JSON_FIELDS.schema, true) };
}
