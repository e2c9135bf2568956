import { gzipSync } from "node:zlib";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import { itemId } from "@responses-edge/responses-api/items/registry";
import fc from "fast-check";

/** Bodies that cost the server more than their size suggests. */

export const MIB = 1024 * 1024;

/** The number of units that fits into the given number of characters, with commas between them. */
export function filled(unit: string, characters: number): string {
  const count = Math.max(1, Math.floor(characters / (unit.length + 1)));
  return `${unit},`.repeat(count).slice(0, -1);
}

/** `count` units, made from their index, with commas between them. */
export function counting(count: number, unit: (index: number) => unknown): string {
  return Array.from({ length: count }, (_, index) => JSON.stringify(unit(index))).join(",");
}

/** A request for the simulator, with more fields as JSON text. */
export function request(...fields: string[]): string {
  return `{${['"model":"simulator"', '"store":false', ...fields].join(",")}}`;
}

/** A request for a model whose context window has any length. */
function longRequest(...fields: string[]): string {
  return request(...fields).replace('"simulator"', '"simulator?max_model_len=100000000"');
}

/** One hostile body and the required answer. */
export interface Row {
  name: string;
  /** The JSON text, or bytes that are sent as they are. */
  body: () => string | Uint8Array;
  path?: string;
  /** True: sent to a gateway with an encryption key. A gateway without one reads unencrypted compaction items. */
  sealing?: true;
  /** The error; null if the request is served. */
  refused: { status: number; param: string | null; code: string } | null;
  /** The maximum number of reads of its validation; by default a constant. */
  reads?: number;
}

const REFUSED_READS = 400;

const tooLarge = { status: 413, param: null, code: "request_too_large" };
const bad = (param: string | null, code: string) => ({ status: 400, param, code });
const call = (index: number) => ({ type: "function_call", call_id: `c${index}`, name: "f", arguments: "{}" });
const asked = (index: number) => ({
  type: "mcp_approval_request",
  id: `mcpr_${index}`,
  server_label: "docs",
  name: "look",
  arguments: "{}",
});
const answered = (index: number, approve: boolean) => ({
  type: "mcp_approval_response",
  approval_request_id: `mcpr_${index}`,
  approve,
});
/** A forged encrypted item, under the name of an existing key. */
const sealed = (index: number, bytes = 60) => `re1.k.${Buffer.alloc(bytes, `${index}`).toString("base64url")}`;
const thought = (encrypted_content: string) => ({ type: "reasoning", summary: [], encrypted_content });
const mcp = (index: number) => ({ type: "mcp", server_label: `s${index}`, server_url: "https://example.com/mcp" });
const allowed = (tools: string) => `"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[${tools}]}`;
const functionTool = (fields: object) => JSON.stringify({ type: "function", name: "f", ...fields });

const decision = (question: string) => `{"model":"simulator","input":"x","questions":[${question}]}`;
const batch = (field = "") =>
  `{"input_file_id":"file-1","endpoint":"/v1/responses","completion_window":"24h"${field && ","}${field}}`;

/** A compaction item without encryption, whose content is this JSON. */
const compacted = (json: string) => JSON.stringify({ type: "compaction", encrypted_content: `cmp1.${json}` });
const contentOf = (messages: number) =>
  `{"v":1,"before":[${filled('{"role":"user","content":"x"}', messages * 30)}],"summary":"","after":[]}`;
const namespace = (at: number, count: number, stem = "") => ({
  type: "namespace",
  name: `n${at}`,
  tools: Array.from({ length: count }, (_, index) => ({ type: "function", name: `f${index}${stem}`.slice(0, 128) })),
});
const unnamedOutput = () => ({ type: "function_call_output", name: "f", output: "" });
const brought = (at: number) => ({ type: "additional_tools", tools: [namespace(at, 100)] });

/**
 * The table. The sizes are large enough to hurt. A body that is refused at its beginning has the same cost at any size.
 * For a served body the number of reads is bounded by its length, so that larger ones show nothing new.
 */
export const ROWS: Row[] = [
  // Before the body is parsed
  { name: "12 MB of zeros", body: () => request(`"input":[${filled("0", 12_000_000)}]`), refused: tooLarge },
  { name: "12 MB of {}", body: () => request(`"input":[${filled("{}", 12_000_000)}]`), refused: tooLarge },
  { name: '{"a":{}}, a million times', body: () => `[${filled('{"a":{}}', 9 * MIB)}]`, refused: tooLarge },
  { name: "600,000 keys", body: () => `{${filled('"k":0', 3.6 * MIB)}}`, refused: tooLarge },
  { name: "12 MB of [", body: () => "[".repeat(12_000_000), refused: bad(null, "invalid_json") },
  { name: '12 MB of {"a":', body: () => '{"a":'.repeat(2_400_000), refused: bad(null, "invalid_json") },
  { name: "a bomb: 64 MB in 64 kB of gzip", body: () => gzipSync(Buffer.alloc(64 * MIB, "[")), refused: tooLarge },
  {
    name: "bytes that are no gzip",
    body: () => new Uint8Array(64 * 1024).fill(7),
    refused: bad(null, "invalid_content_encoding"),
  },

  // Compaction items, which have JSON in a text
  {
    name: "a compaction item of 11 MB of [",
    body: () => request(`"input":[${compacted(`[${"[".repeat(11_000_000)}`)}]`),
    refused: bad("input[0].encrypted_content", "invalid_encrypted_content"),
  },
  {
    name: "a compaction item of a million items",
    body: () =>
      request(`"input":[${compacted(`{"v":1,"before":[${filled("{}", 3 * MIB)}],"summary":"","after":[]}`)}]`),
    refused: bad("input[0].encrypted_content", "invalid_encrypted_content"),
  },
  {
    name: "a compaction item of 60,000 messages",
    body: () => request(`"input":[${compacted(contentOf(60_000))}]`),
    refused: bad("input[0].encrypted_content", "invalid_encrypted_content"),
  },
  {
    name: "49,999 compaction items, of which the last can be read",
    body: () =>
      request(
        `"input":[${counting(49_998, () => ({ type: "compaction", encrypted_content: "x" }))},${compacted(contentOf(1))}]`,
      ),
    refused: null,
  },
  {
    name: "a compaction item to /compact of 11 MB of [",
    path: "/v1/responses/compact",
    body: () => request(`"input":[${compacted(`[${"[".repeat(11_000_000)}`)}]`),
    refused: bad("input[0].encrypted_content", "invalid_encrypted_content"),
  },

  // Tools that the client runs
  {
    name: "24 namespaces of 1,000 tools",
    body: () => request(`"input":"?","tools":[${counting(24, (at) => namespace(at, 1_000))}]`),
    refused: bad("tools", "array_above_max_length"),
  },
  {
    name: "1,024 tools whose names are too long for a model",
    body: () => longRequest(`"input":"?","tools":[${JSON.stringify(namespace(0, 1_024, "n".repeat(128)))}]`),
    refused: null,
  },
  {
    name: "3,000 outputs that have nothing but the name of what was called",
    body: () => longRequest(`"input":[${counting(3_000, call)},${counting(3_000, unnamedOutput)}]`),
    refused: null,
  },
  {
    name: "a thousand items that bring a hundred tools each",
    body: () => longRequest(`"input":[${counting(1_000, brought)},{"role":"user","content":"?"}]`),
    refused: null,
  },

  // Arrays
  {
    name: "400,000 zeros as items",
    body: () => request(`"input":[${filled("0", 800_000)}]`),
    refused: bad("input", "array_above_max_length"),
  },
  {
    name: "50,000 zeros as items",
    body: () => request(`"input":[${filled("0", 100_000)}]`),
    refused: bad("input[0]", "invalid_type"),
  },
  {
    name: "50,000 empty items",
    body: () => request(`"input":[${filled("{}", 150_000)}]`),
    refused: bad("input[0].type", "missing_required_parameter"),
  },
  {
    name: "items whose ids are too long",
    body: () =>
      request(`"input":[${filled(JSON.stringify({ role: "user", content: "x", id: "i".repeat(65) }), 4 * MIB)}]`),
    refused: bad("input[0].id", "string_above_max_length"),
  },
  {
    name: "a bad item after 10,000 good ones",
    body: () => request(`"input":[${`${'{"role":"user","content":"x"},'.repeat(10_000)}0`}]`),
    refused: bad("input[10000]", "invalid_type"),
    reads: 300_000,
  },
  {
    name: "400,000 parts that are none",
    body: () => request(`"input":[{"role":"user","content":[${filled("0", 800_000)}]}]`),
    refused: bad("input[0].content[0]", "invalid_type"),
  },
  {
    name: "include with 130,000 values",
    body: () => request('"input":"x"', `"include":[${filled('"x"', 520_000)}]`),
    refused: bad("include", "array_above_max_length"),
  },
  {
    name: "100,000 stop strings",
    body: () => request('"input":"x"', `"stop":[${filled('""', 300_000)}]`),
    refused: bad("stop", "array_above_max_length"),
  },
  {
    name: "100,000 messages that are no objects",
    body: () => request('"input":"x"', `"previous_input_messages":[${filled("0", 199_998)}]`),
    refused: bad("previous_input_messages[0]", "invalid_type"),
  },
  {
    name: "400,000 compactions",
    body: () => request('"input":"x"', `"context_management":[${filled("0", 800_000)}]`),
    refused: bad("context_management", "array_above_max_length"),
  },
  {
    name: "a conversation of 400,000 zeros",
    path: "/v1/conversations",
    body: () => `{"items":[${filled("0", 800_000)}]}`,
    refused: bad("items", "array_above_max_length"),
  },

  // Moderation
  {
    name: "a moderation of 400,000 texts",
    path: "/v1/moderations",
    body: () => `{"input":[${filled('""', 1.2 * MIB)}]}`,
    refused: bad("input", "array_above_max_length"),
  },
  {
    name: "a moderation of a text of 11 MB",
    path: "/v1/moderations",
    body: () => `{"input":"${"x".repeat(11_000_000)}"}`,
    refused: bad("input", "string_above_max_length"),
  },
  {
    name: "a moderation of 100,000 parts that are none",
    path: "/v1/moderations",
    body: () => `{"input":[{"type":"text","text":"x"},${filled("0", 199_998)}]}`,
    refused: bad("input", "array_above_max_length"),
  },

  // Images
  {
    name: "a drawing with 50,000 fields that no image server gets",
    path: "/v1/images/generations",
    body: () => `{"prompt":"x",${Array.from({ length: 50_000 }, (_, i) => `"k${i}":0`)}}`,
    refused: bad("k0", "unsupported_parameter"),
  },
  {
    name: "a drawing with a path of the server's",
    path: "/v1/images/generations",
    body: () => `{"prompt":"x","lora":{"path":"${"/".repeat(10 * MIB)}"}}`,
    refused: bad("lora", "unsupported_parameter"),
  },
  {
    name: "an image of 11 MB that is none, as an item",
    body: () =>
      request(
        `"input":[{"type":"image_generation_call","id":"ig_1","result":"${"*".repeat(11_000_000)}"},{"role":"user","content":"x"}]`,
      ),
    refused: null,
  },

  // Decisions, batches and webhook endpoints
  {
    name: "400,000 questions of a decision",
    path: "/v1/decisions",
    body: () => `{"model":"simulator","input":"x","questions":[${filled("0", 800_000)}]}`,
    refused: bad("questions", "array_above_max_length"),
  },
  {
    name: "a question with 400,000 choices",
    path: "/v1/decisions",
    body: () => decision(`{"type":"choice","instructions":"?","choices":[${filled("0", 800_000)}]}`),
    refused: bad("questions[0].choices", "array_above_max_length"),
  },
  {
    name: "a question with 400,000 levels",
    path: "/v1/decisions",
    body: () => decision(`{"type":"score","instructions":"?","levels":[${filled("0", 800_000)}]}`),
    refused: bad("questions[0].levels", "array_above_max_length"),
  },
  {
    name: "a question of 11 MB",
    path: "/v1/decisions",
    body: () => decision(`{"type":"predicate","instructions":"${"x".repeat(11_000_000)}"}`),
    refused: bad("questions[0].instructions", "string_above_max_length"),
  },
  {
    name: "a batch with 50,000 keys of metadata",
    path: "/v1/batches",
    body: () => batch(`"metadata":{${Array.from({ length: 50_000 }, (_, i) => `"k${i}":0`)}}`),
    refused: bad("metadata", "object_above_max_properties"),
  },
  {
    name: "a batch whose file's id is of 11 MB",
    path: "/v1/batches",
    body: () => batch().replace("file-1", "f".repeat(11_000_000)),
    refused: bad("input_file_id", "string_above_max_length"),
  },
  {
    name: "a webhook endpoint of 400,000 types of events",
    path: "/v1/webhook_endpoints",
    body: () => `{"name":"n","url":"https://example.com/","event_types":[${filled("0", 800_000)}]}`,
    refused: bad("event_types", "array_above_max_length"),
  },
  {
    name: "a webhook endpoint whose URL is of 11 MB",
    path: "/v1/webhook_endpoints",
    body: () =>
      `{"name":"n","url":"https://example.com/${"u".repeat(11_000_000)}","event_types":["response.completed"]}`,
    refused: bad("url", "string_above_max_length"),
  },

  // Maps
  {
    name: "metadata with 50,000 keys",
    body: () => request('"input":"x"', `"metadata":{${Array.from({ length: 50_000 }, (_, i) => `"k${i}":0`)}}`),
    refused: bad("metadata", "object_above_max_properties"),
    reads: 50_400,
  },
  {
    name: "a logit_bias of 50,000 texts",
    body: () => request('"input":"x"', `"logit_bias":{${Array.from({ length: 50_000 }, (_, i) => `"k${i}":""`)}}`),
    refused: bad("logit_bias.k0", "invalid_type"),
    reads: 50_400,
  },
  {
    name: "an MCP server with 50,000 headers",
    body: () =>
      request(
        '"input":"x"',
        `"tools":[{"type":"mcp","server_label":"s","headers":{${Array.from({ length: 50_000 }, (_, i) => `"k${i}":0`)}}}]`,
      ),
    refused: bad("tools[0].headers", "object_above_max_properties"),
    reads: 50_400,
  },
  {
    name: "the same key 400,000 times",
    body: () => request(filled('"input":0', 4 * MIB)),
    refused: bad("input", "invalid_type"),
  },
  {
    name: "100,000 prototypes",
    body: () => request(filled('"__proto__":{"input":"x"}', 2.5 * MIB)),
    refused: bad("input", "missing_required_parameter"),
  },

  // Texts and numbers
  {
    name: "12 MB of unicode escapes",
    body: () => request('"input":"x"', `"user":"${"\\u0041".repeat(2_000_000)}"`),
    refused: bad("user", "string_above_max_length"),
  },
  {
    name: "a number of 12 million digits",
    body: () => request('"input":"x"', `"seed":${"9".repeat(12_000_000)}`),
    refused: bad("seed", "invalid_type"),
  },
  {
    name: "a media type of 10 MB",
    body: () =>
      request(
        `"input":[{"role":"user","content":[{"type":"input_file","file_data":"data:text/${"a".repeat(10 * MIB)}"}]}]`,
      ),
    refused: bad("input[0].content[0].file_data", "invalid_value"),
  },
  {
    name: "a function's name of 11 MB",
    body: () => request('"input":"x"', `"tools":[${functionTool({ name: "a".repeat(11 * MIB) })}]`),
    refused: bad("tools[0].name", "string_above_max_length"),
  },
  {
    name: "a tool's type of 11 MB",
    body: () => request('"input":"x"', `"tools":[{"type":"${"a".repeat(11 * MIB)}"}]`),
    refused: bad("tools[0].type", "unsupported_parameter"),
  },
  {
    name: "a chosen name of 11 MB",
    body: () =>
      request(
        '"input":"x"',
        `"tools":[${functionTool({})}]`,
        `"tool_choice":{"type":"function","name":"${"a".repeat(11 * MIB)}"}`,
      ),
    refused: bad("tool_choice.name", "string_above_max_length"),
  },

  // Tools
  {
    name: "1,025 tools",
    body: () => request('"input":"x"', `"tools":[${filled("{}", 3 * 1025)}]`),
    refused: bad("tools", "array_above_max_length"),
  },
  {
    name: "1,024 tools without a type",
    body: () => request('"input":"x"', `"tools":[${filled("{}", 3 * 1024)}]`),
    refused: bad("tools[0].type", "missing_required_parameter"),
    // Tools in namespaces are counted first.
    reads: 4_000,
  },
  {
    name: "1,024 tools of one name",
    body: () => request('"input":"x"', `"tools":[${counting(1024, () => ({ type: "function", name: "f" }))}]`),
    refused: bad("tools[1].name", "invalid_value"),
    reads: 30_000,
  },
  {
    name: "100,000 chosen tools",
    body: () => request('"input":"x"', `"tools":[${functionTool({})}]`, allowed(filled(functionTool({}), 3 * MIB))),
    refused: bad("tool_choice.tools", "array_above_max_length"),
  },
  {
    name: "100,000 domains",
    body: () =>
      request(
        '"input":"x"',
        `"tools":[{"type":"web_search","filters":{"allowed_domains":[${filled('"a"', 400_000)}]}}]`,
      ),
    refused: bad("tools[0].filters.allowed_domains", "array_above_max_length"),
  },
  {
    name: "600 MCP servers",
    body: () => request('"input":"x"', `"tools":[${counting(600, mcp)}]`),
    refused: bad("tools[32]", "array_above_max_length"),
    reads: 30_000,
  },

  // Costs beyond validation
  {
    name: "1,500 references to as many homes",
    body: () =>
      request(
        `"input":[${counting(1500, () => ({ type: "item_reference", id: itemId("message", newTurnAddress(), "output", 0) }))}]`,
      ),
    refused: bad("input[256].id", "array_above_max_length"),
    reads: 50_000,
  },
  {
    name: "30,000 approvals that nobody asked for",
    body: () => request(`"input":[${counting(30_000, (index) => answered(index, true))}]`),
    refused: bad("input[0].approval_request_id", "approval_request_not_found"),
    reads: 1_000_000,
  },
  {
    name: "129 approved calls",
    body: () =>
      request(
        `"tools":[${JSON.stringify({ ...mcp(0), server_label: "docs" })}]`,
        `"input":[${counting(129, asked)},${counting(129, (index) => answered(index, true))}]`,
      ),
    refused: bad("input[257].approval_request_id", "array_above_max_length"),
    reads: 10_000,
  },
  {
    name: "5,000 refused approvals",
    body: () =>
      longRequest(
        `"input":[${counting(5_000, asked)},${counting(5_000, (index) => answered(index, false))},{"role":"user","content":"Hi."}]`,
      ),
    refused: null,
  },
  {
    name: "5,000 calls and their outputs",
    body: () =>
      longRequest(
        `"input":[${counting(5_000, call)},${counting(5_000, (index) => ({ type: "function_call_output", call_id: `c${index}`, output: "" }))},{"role":"user","content":"Hi."}]`,
      ),
    refused: null,
  },
  {
    name: "10,000 thoughts that were sealed with a key that is here, all changed",
    body: () =>
      longRequest(`"input":[${counting(10_000, (index) => thought(sealed(index)))},{"role":"user","content":"Hi."}]`),
    sealing: true,
    refused: null,
  },
  {
    name: "a sealed thought of 11 MB",
    body: () => longRequest(`"input":[${JSON.stringify(thought(sealed(0, 8 * MIB)))},{"role":"user","content":"Hi."}]`),
    sealing: true,
    refused: null,
  },
  {
    name: "1,024 tools, all chosen",
    body: () =>
      request(
        '"input":"x"',
        `"tools":[${counting(1024, (index) => ({ type: "function", name: `f${index}` }))}]`,
        allowed(counting(1024, (index) => ({ type: "function", name: `f${index}` }))),
      ),
    refused: null,
  },
  {
    name: "template arguments with 50,000 keys",
    body: () =>
      request(
        '"input":"x"',
        `"chat_template_kwargs":{${Array.from({ length: 50_000 }, (_, i) => `"${i.toString(36)}":0`)}}`,
      ),
    refused: null,
  },
];

/** The maximum number of reads while the row's body is validated. */
export function mostReads(row: Row, values: number): number {
  return row.refused ? (row.reads ?? REFUSED_READS) : 400 + 40 * values;
}

// The generated ones

/** JSON values (and invalid ones) that a body repeats. */
const UNITS = [
  "0",
  "-1e400",
  "null",
  "true",
  '""',
  '"x"',
  '"\\ud800\\u0000"',
  "[]",
  "{}",
  "[[[[]]]]",
  '{"a":{"a":{}}}',
  '{"__proto__":{"type":"message"}}',
  '{"type":null}',
  '{"type":"message","role":"user","content":"x"}',
  '{"role":"user","content":[{"type":"input_text","text":"x"}]}',
  '{"role":"user","content":[{"type":"input_image","image_url":"x"}]}',
  '{"role":"system","content":"x"}',
  '{"role":"assistant","content":"x","status":"in_progress"}',
  '{"role":"nobody","content":[]}',
  '{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"x"}]}',
  '{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}',
  '{"type":"function_call_output","call_id":"c","output":"x"}',
  '{"type":"item_reference","id":"msg_1"}',
  `{"type":"item_reference","id":"msg_${"a".repeat(32)}o0"}`,
  JSON.stringify(asked(0)),
  JSON.stringify(answered(0, false)),
  '{"type":"mcp_list_tools","server_label":"docs","tools":[{"name":"x","input_schema":{}}]}',
  `{"type":"mcp_call","id":"mcp_${"a".repeat(32)}o0","server_label":"docs","name":"x","arguments":"{}"}`,
  '{"type":"code_interpreter_call","code":"x","outputs":[{"type":"logs","logs":"x"}]}',
  '{"type":"function","name":"f","parameters":{"type":"object","properties":{}}}',
  '{"type":"web_search"}',
  JSON.stringify(mcp(0)),
];

/** The containers of many units: an array, an object, a text, or nested values. */
const SHAPES: Record<string, (unit: string, characters: number) => string> = {
  array: (unit, characters) => `[${filled(unit, characters)}]`,
  object: (unit, characters) => {
    const count = Math.max(1, Math.floor(characters / (unit.length + 8)));
    return `{${Array.from({ length: count }, (_, index) => `"${index.toString(36)}":${unit}`)}}`;
  },
  text: (unit, characters) => JSON.stringify(unit.repeat(Math.max(1, Math.floor(characters / unit.length)))),
  nested: (unit, characters) => {
    const depth = Math.max(1, Math.floor(characters / 7));
    return '{"a":'.repeat(depth) + unit + "}".repeat(depth);
  },
  broken: (unit, characters) => `[${filled(unit, characters)}`,
};

/** The place of the container. */
const PLACES: Record<string, (value: string) => string> = {
  input: (value) => request(`"input":${value}`),
  content: (value) => request(`"input":[{"role":"user","content":${value}}]`),
  "assistant's content": (value) => request(`"input":[{"role":"assistant","content":${value}}]`),
  output: (value) =>
    request(`"input":[${JSON.stringify(call(0))},{"type":"function_call_output","call_id":"c0","output":${value}}]`),
  reasoning: (value) => request(`"input":[{"type":"reasoning","summary":${value}}]`),
  instructions: (value) => request('"input":"x"', `"instructions":${value}`),
  include: (value) => request('"input":"x"', `"include":${value}`),
  metadata: (value) => request('"input":"x"', `"metadata":${value}`),
  tools: (value) => request('"input":"x"', `"tools":${value}`),
  parameters: (value) => request('"input":"x"', `"tools":[{"type":"function","name":"f","parameters":${value}}]`),
  allowed_tools: (value) =>
    request('"input":"x"', `"tools":[{"type":"mcp","server_label":"s","allowed_tools":${value}}]`),
  tool_choice: (value) => request('"input":"x"', `"tool_choice":${value}`),
  "chosen tools": (value) =>
    request(
      '"input":"x"',
      `"tools":[${functionTool({})}]`,
      `"tool_choice":{"type":"allowed_tools","mode":"auto","tools":${value}}`,
    ),
  schema: (value) => request('"input":"x"', `"text":{"format":{"type":"json_schema","name":"s","schema":${value}}}`),
  stop: (value) => request('"input":"x"', `"stop":${value}`),
  logit_bias: (value) => request('"input":"x"', `"logit_bias":${value}`),
  chat_template_kwargs: (value) => request('"input":"x"', `"chat_template_kwargs":${value}`),
  previous_input_messages: (value) => request('"input":"x"', `"previous_input_messages":${value}`),
  conversation: (value) => request('"input":"x"', `"conversation":${value}`),
  model: (value) => `{"model":${value},"input":"x","store":false}`,
  seed: (value) => request('"input":"x"', `"seed":${value}`),
  "an unknown field": (value) => request('"input":"x"', `"unknown":${value}`),
  "the whole": (value) => value,
};

export interface Generated {
  place: string;
  shape: string;
  unit: string;
  characters: number;
}

/** Bodies from 1 kB to 12 MB. Most are small, because superlinear cost is also visible there. */
export const generated: fc.Arbitrary<Generated> = fc.record({
  place: fc.constantFrom(...Object.keys(PLACES)),
  shape: fc.constantFrom(...Object.keys(SHAPES)),
  unit: fc.constantFrom(...UNITS),
  characters: fc.oneof(
    { weight: 950, arbitrary: fc.integer({ min: 1_000, max: 3_000 }) },
    { weight: 44, arbitrary: fc.integer({ min: 3_000, max: 200_000 }) },
    { weight: 6, arbitrary: fc.integer({ min: 200_000, max: 12_000_000 }) },
  ),
});

export function textOf({ place, shape, unit, characters }: Generated): string {
  const value = SHAPES[shape]?.(unit, characters) ?? "";
  return PLACES[place]?.(value) ?? "";
}
