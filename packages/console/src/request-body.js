/**
 * A request that the user is editing, and the body that is made of it.
 *
 * @typedef {object} Attachment
 * @property {string} name
 * @property {string} type its MIME type
 * @property {number} size bytes
 * @property {string} url `data:` URL with the whole file; empty if it was uploaded
 * @property {string} [fileId] id of an uploaded file
 *
 * @typedef {object} McpServer
 * @property {string} label
 * @property {string} url
 * @property {string} authorization a token for the server; a reload deletes it
 * @property {boolean} asks true if the user approves each call
 *
 * @typedef {object} Draft
 * @property {string} model
 * @property {string} secondModel the model that gets the same request, side by side; empty for none
 * @property {string} instructions
 * @property {string} input
 * @property {Attachment[]} attachments
 * @property {boolean} enterSends true if Enter sends the request; otherwise Ctrl + Enter sends it
 * @property {string} functions JSON: a list of functions
 * @property {McpServer[]} servers
 * @property {string[]} hosted types of hosted tools
 * @property {string[]} stores ids of the vector stores that `file_search` searches
 * @property {string} searchResults the maximum number of results
 * @property {string} searchFilters JSON
 * @property {string} effort
 * @property {"text" | "json_object" | "json_schema"} format
 * @property {string} schema JSON
 * @property {import("./sending.js").Transport} transport
 * @property {string} maxOutputTokens
 * @property {string} temperature
 * @property {boolean} store
 * @property {boolean} rawMessages
 * @property {string} further JSON: more fields of the body
 * @property {string} previous the id of the response that is continued
 */

/** A field of the form that has an invalid value. */
export class FormFault extends Error {
  /** @param {string} field its id on the page @param {string} message */
  constructor(field, message) {
    super(message);
    this.name = "FormFault";
    this.field = field;
  }
}

/** @returns {Draft} */
export function emptyDraft() {
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
    searchResults: "",
    searchFilters: "",
    effort: "",
    format: "text",
    schema: "",
    transport: "background",
    maxOutputTokens: "",
    temperature: "",
    store: true,
    rawMessages: false,
    further: "",
    previous: "",
    // A keyboard on a screen has no Shift + Enter.
    enterSends: !globalThis.matchMedia?.("(pointer: coarse)").matches,
  };
}

/**
 * The body for a draft, without the transport's fields. Throws a FormFault.
 * @param {Draft} draft
 * @param {unknown} [input] replaces the draft's input: the outputs of calls
 * @returns {Record<string, unknown>}
 */
export function bodyOf(draft, input = inputOf(draft)) {
  const tools = toolsOf(draft);
  const format = formatOf(draft);
  const include = includeOf(draft);
  return {
    ...(draft.model && { model: draft.model }),
    ...(draft.previous && { previous_response_id: draft.previous }),
    ...(draft.instructions && { instructions: draft.instructions }),
    input,
    ...(tools.length > 0 && { tools }),
    ...(include.length > 0 && { include }),
    ...(draft.effort && { reasoning: { effort: draft.effort } }),
    ...(format && { text: { format } }),
    ...(draft.maxOutputTokens && { max_output_tokens: numberIn("max-output-tokens", draft.maxOutputTokens) }),
    ...(draft.temperature && { temperature: numberIn("temperature", draft.temperature) }),
    ...(!draft.store && { store: false }),
    ...(draft.rawMessages && { enable_response_messages: true }),
    ...furtherOf(draft),
  };
}

/**
 * The typed input: its text, or a message with its parts.
 * @param {Draft} draft
 * @param {(attachment: Attachment) => unknown} [urlOf] gives the URL of an attachment
 */
export function inputOf({ input, attachments }, urlOf = ({ url }) => url) {
  if (attachments.length === 0) return input;
  const content = [
    ...(input === "" ? [] : [{ type: "input_text", text: input }]),
    ...attachments.map((attachment) =>
      attachment.type.startsWith("image/")
        ? { type: "input_image", image_url: urlOf(attachment), detail: "auto" }
        : attachment.fileId
          ? { type: "input_file", file_id: attachment.fileId }
          : { type: "input_file", filename: attachment.name, file_data: urlOf(attachment) },
    ),
  ];
  return [{ type: "message", role: "user", content }];
}

/** @param {Draft} draft @returns {Record<string, unknown>[]} */
function toolsOf({ functions, servers, hosted, stores, searchResults, searchFilters }) {
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
            ...(searchResults && { max_num_results: numberIn("searchResults", searchResults) }),
            ...(searchFilters.trim() !== "" && { filters: jsonIn("searchFilters", searchFilters) }),
          },
        ]),
    ...hosted.map((type) => (type === "code_interpreter" ? { type, container: { type: "auto" } } : { type })),
  ];
}

/**
 * The fields that an answer shows and has only on request.
 * @param {Draft} draft
 */
function includeOf({ stores, hosted }) {
  return [
    ...(stores.length > 0 ? ["file_search_call.results"] : []),
    ...(hosted.includes("code_interpreter") ? ["code_interpreter_call.outputs"] : []),
    ...(hosted.some((type) => type.startsWith("web_search")) ? ["web_search_call.action.sources"] : []),
  ];
}

/** @param {string} text @returns {Record<string, unknown>[]} */
function functionsIn(text) {
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

/** @param {Draft} draft @returns {Record<string, unknown> | undefined} */
function formatOf({ format, schema }) {
  if (format === "text") return undefined;
  if (format === "json_object") return { type: "json_object" };
  const value = jsonIn("schema", schema);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new FormFault("schema", "Expected a JSON schema, an object.");
  return { type: "json_schema", name: "answer", strict: true, schema: value };
}

/** @param {Draft} draft @returns {Record<string, unknown>} */
function furtherOf({ further }) {
  if (further.trim() === "") return {};
  const value = jsonIn("further", further);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new FormFault("further", "Expected a JSON object of fields.");
  return value;
}

/** @param {string} field @param {string} text @returns {any} */
function jsonIn(field, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FormFault(field, `This is no JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** @param {string} field @param {string} text */
function numberIn(field, text) {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new FormFault(field, "Expected a number.");
  return value;
}
