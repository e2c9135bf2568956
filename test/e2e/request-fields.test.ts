import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type RequestField, requestFields, type Samples } from "../conformance/request-fields.ts";
import type { JsonObject } from "../conformance/violations.ts";
import { type Gateway, startGateway } from "./support.ts";
import { startTools, type ToolServer } from "./tool-support.ts";

/**
 * No field of a request is accepted and then ignored. Each field of the `openai` package's types is sent: it has an
 * effect, or a 400 names it, or docs/deviations.md lists it as without effect.
 */

/** Fields whose effect is not visible in one answer or one prompt, and the tests that show it. */
const SHOWN_ELSEWHERE: Record<string, string> = {
  metadata: "e2e/create.test.ts",
  "conversation.metadata": "e2e/conversations.test.ts",
  store: "e2e/state.test.ts",
  stream: "e2e/create.test.ts",
  prompt_cache_key: "e2e/fleet.test.ts",
  "background_options.continuation_id": "unit/fake-timers/deferred-runs.test.ts",
  "context_management.compact_threshold": "e2e/context.test.ts",
  "include=reasoning.encrypted_content": "e2e/reasoning.test.ts",
  "include=web_search_call.results": "e2e/web-search.test.ts",
  "include=web_search_call.action.sources": "e2e/web-search.test.ts",
  "include=code_interpreter_call.outputs": "e2e/code-interpreter.test.ts",
  "reasoning.context": "e2e/harmony.test.ts",
  "filters.allowed_domains": "e2e/web-search.test.ts",
  "include=file_search_call.results": "e2e/file-search.test.ts",
  "hybrid_search.embedding_weight": "e2e/vector-stores.test.ts",
  "hybrid_search.text_weight": "e2e/vector-stores.test.ts",
  "tools<function>.defer_loading": "e2e/client-tools.test.ts",
  "tools<custom>.defer_loading": "e2e/client-tools.test.ts",
  "tools<namespace>.description": "unit/tool-names.test.ts",
  "*.allowed_callers=direct": "e2e/programs.test.ts",
  "caller<program>": "e2e/programs.test.ts",
  "input<program_output>": "e2e/programs.test.ts",
  "tools<mcp>.authorization": "e2e/mcp.test.ts",
  "tools<mcp>.headers": "e2e/mcp.test.ts",
  "tools<mcp>.server_url": "e2e/mcp.test.ts",
  "always.tool_names": "e2e/mcp-approval.test.ts",
  "always.read_only": "e2e/mcp-approval.test.ts",
  "tools<code_interpreter>.container": "e2e/containers.test.ts",
  "container<auto>.memory_limit": "e2e/containers.test.ts",
  "*<input_file>.detail": "e2e/page-pictures.test.ts",
  "tool_choice<mcp>.name": "e2e/mcp.test.ts",
  "input<message:assistant>.phase": "e2e/harmony-items.test.ts",
  "input<local_shell_call_output>.id": "e2e/client-tools.test.ts",
  "input<tool_search_output>.execution": "e2e/client-tools.test.ts",
  "input.mode": "e2e/moderation.test.ts",
  "output.mode": "e2e/moderation.test.ts",
  "multi_agent.max_concurrent_subagents": "e2e/agents.test.ts",
  "input<image_generation_call>.id": "e2e/images.test.ts",
  "input<image_generation_call>.result": "e2e/images.test.ts",
  "input<mcp_approval_response>.approval_request_id": "e2e/mcp-approval.test.ts",
};

let gateway: Gateway;
let tools: ToolServer;
let python: ToolServer;
let search: Server;

beforeAll(async () => {
  tools = await startTools({ echo: { properties: { text: { type: "string" } }, readOnly: true, run: () => "Echo." } });
  python = await startTools({ python: { properties: { code: { type: "string" } }, run: () => "1" } });
  search = createServer((_, response) => {
    const results = [{ url: "https://tea.example.com/", title: "Tea", content: "Steep it." }];
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ results, flagged: false }));
  });
  await new Promise<void>((resolve) => search.listen(0, "127.0.0.1", resolve));
  gateway = await startGateway({
    MCP_SERVERS: tools.url,
    SEARXNG_URL: `http://127.0.0.1:${(search.address() as AddressInfo).port}`,
    TOOL_SERVERS: JSON.stringify({ python: python.url }),
    CONTAINER_MEMORY_LIMITS: "1g,4g",
    GUARD_URL: `http://127.0.0.1:${(search.address() as AddressInfo).port}/guard`,
    ENCRYPTION_KEYS: `test:${"a".repeat(43)}=`,
  });
});
afterAll(async () => {
  await gateway.close();
  await tools.close();
  await python.close();
  search.close();
});

it("each field has an effect, is refused by its name, or is documented as without effect", async () => {
  const documented = withoutEffect();
  const served = Object.keys(SHOWN_ELSEWHERE);
  const used = new Set<string>();
  const isListed = (patterns: readonly string[], names: readonly string[]) => {
    const found = patterns.filter((pattern) => names.some((name) => matches(pattern, name)));
    for (const pattern of found) used.add(pattern);
    return found.length > 0;
  };
  const faults: string[] = [];
  for (const { field, outcomes, trouble } of await outcomesOf(requestFields(await samples()).fields)) {
    const { name } = field;
    faults.push(...trouble.map((text) => `${name}: ${text}`));
    const hasNoEffect = isListed(documented, [name, ...field.within]);
    const isShownElsewhere = isListed(served, [name, ...field.within]);
    if (outcomes.has("effect")) {
      if (!isShownElsewhere && isListed(documented, [name]))
        faults.push(`${name} has an effect, and docs/deviations.md says that it has none`);
    } else if (!outcomes.has("refused") && !hasNoEffect && !isShownElsewhere) {
      faults.push(`${name} is taken, and nothing comes of it (${[...outcomes].join()})`);
    }
  }
  const stale = [...documented, ...served].filter((pattern) => !used.has(pattern));
  expect({ faults, stale }).toEqual({ faults: [], stale: [] });
});

/** Fields that may be null where another has their content, or where the call before has it, too. */
const NEEDED_HERE = [
  ...["content<input_image>.image_url", "output<input_image>.image_url", "output<input_file>.file_data"],
  "input<function_call_output>.call_id",
];

it("each field that may be null may be it, wherever the rest of the request is served", async () => {
  const left = requestFields(await samples()).nullable;
  const faults: string[] = [];
  let sent = 0;
  const work = async () => {
    for (let field = left.shift(); field; field = left.shift()) {
      const { name, nulled, without } = field;
      if (!nulled || NEEDED_HERE.includes(name) || (await observed(field, without)).status !== 200) continue;
      const { status, told } = await observed(field, nulled);
      sent += 1;
      if (status !== 200) faults.push(`${name}: ${status} ${told}`);
    }
  };
  await Promise.all(Array.from({ length: 6 }, work));
  expect(faults).toEqual([]);
  expect(sent).toBeGreaterThan(50);
});

it.each(Object.entries(SHOWN_ELSEWHERE))("%s is shown in %s", (pattern, file) => {
  const name = pattern.split(/[.=]/).at(-1) ?? "";
  const word = /<(.+)>$/.exec(name)?.[1] ?? name;
  const last = pattern.includes("=") ? pattern.slice(pattern.indexOf("=") + 1) : word;
  expect(readFileSync(new URL(`../${file}`, import.meta.url), "utf8")).toContain(last);
});

/** The fields that docs/deviations.md lists. */
function withoutEffect(): string[] {
  const text = readFileSync(new URL("../../docs/deviations.md", import.meta.url), "utf8");
  const [, section = ""] =
    text
      .split(/^## /m)
      .find((each) => each.startsWith("Fields without effect"))
      ?.split("|---|---|") ?? [];
  const rows = section.split("\n").filter((line) => line.startsWith("| "));
  return rows.flatMap((row) => [...(row.split(" | ")[0] ?? "").matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name));
}

/** Each pattern is asked for each field. */
const expressions = new Map<string, RegExp>();

function matches(pattern: string, name: string): boolean {
  const expression = expressions.get(pattern) ?? expressionOf(pattern);
  expressions.set(pattern, expression);
  return expression.test(name);
}

function expressionOf(pattern: string): RegExp {
  const parts = pattern.split("*").map((part) => part.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`);
}

type Outcome = "refused" | "effect" | "echoed" | "nothing" | "fault";

interface Result {
  field: RequestField;
  outcomes: ReadonlySet<Outcome>;
  /** The problems, in words. */
  trouble: readonly string[];
}

/** Sends several fields at the same time. Leaves out fields within objects that are refused as a whole. */
async function outcomesOf(fields: readonly RequestField[]): Promise<Result[]> {
  const results: Result[] = [];
  const refused = new Set<string>();
  const left = [...fields];
  const work = async () => {
    for (let field = left.shift(); field; field = left.shift()) {
      if (field.within.some((name) => refused.has(name))) continue;
      const result = await outcomeOf(field);
      if (field.name.endsWith(">") && result.outcomes.has("refused")) refused.add(field.name);
      results.push(result);
    }
  };
  await Promise.all(Array.from({ length: 6 }, work));
  return results;
}

async function outcomeOf(field: RequestField): Promise<Result> {
  const outcomes = new Set<Outcome>();
  const trouble: string[] = [];
  const without = await observed(field, field.without);
  if (without.status === 400 && names(without, field) === "what it is in")
    return { field, outcomes: new Set(["refused"]), trouble };
  if (without.status !== 200) trouble.push(`without it: ${without.status} ${without.told}`);
  for (const { value, body } of field.with) {
    const seen = await observed(field, body);
    const outcome = compared(field, without, seen);
    if (outcome === "fault") trouble.push(`${JSON.stringify(value).slice(0, 60)}: ${seen.status} ${seen.told}`);
    outcomes.add(outcome);
  }
  return { field, outcomes, trouble };
}

/** The visible results of a request. */
interface Observed {
  status: number;
  /** The field that a refusal names. */
  param: string | null;
  told: string;
  /** The answer, without ids and times; if it is no JSON object, its text. */
  answer: JsonObject;
  /** The model server's requests. */
  asked: string;
  /** The stored items of the input. */
  items: string;
}

/** Tells whether a refusal names a field, an object that contains it, or another field. */
function names({ param: named }: Observed, { path }: RequestField): "it" | "what it is in" | "another" {
  if (named === null) return "another";
  // Other items may precede. A refusal of an item's type names `type`.
  const param = named.replace(/^(input|items)\[\d+\]/, "$1[0]").replace(/\.type$/, "");
  const name = path.reduce<string>((text, key) => {
    if (typeof key === "number") return `${text}[${key}]`;
    return text === "" ? key : `${text}.${key}`;
  }, "");
  if (param === name || param.startsWith(`${name}.`) || param.startsWith(`${name}[`)) return "it";
  return name.startsWith(`${param}.`) || name.startsWith(`${param}[`) ? "what it is in" : "another";
}

function compared(field: RequestField, without: Observed, seen: Observed): Outcome {
  if (seen.status === 400) return names(seen, field) === "another" ? "fault" : "refused";
  if (seen.status !== 200 || without.status !== 200) return "fault";
  if (seen.asked !== without.asked) return "effect";
  const key = String(field.path[0]);
  const { [key]: echo, ...answer } = seen.answer;
  const { [key]: plain, ...other } = without.answer;
  if (JSON.stringify(answer) !== JSON.stringify(other)) return "effect";
  return JSON.stringify(echo) === JSON.stringify(plain) && seen.items === without.items ? "nothing" : "echoed";
}

const known = new Map<string, Promise<Observed>>();
let sent = 0;

function observed({ body }: RequestField, fields: JsonObject): Promise<Observed> {
  const key = `${body} ${JSON.stringify(fields)}`;
  const seen = known.get(key) ?? observe(body, fields);
  known.set(key, seen);
  return seen;
}

async function observe(kind: string, fields: JsonObject): Promise<Observed> {
  sent += 1;
  // Letters: the simulator's calls take numbers from the question.
  const mark = `#${[...String(sent).padStart(5, "0")].map((digit) => "abcdefghij"[Number(digit)]).join("")}#`;
  const { requests } = gateway.vllm.simulator;
  const earlier = requests.at(-1);
  const answer = await send(kind, completed(kind, fields, mark));
  const text = await answer.text();
  const json = (/^\{/.test(text) ? JSON.parse(text) : { text }) as JsonObject;
  const error = json.error as { param: string | null; message: string } | undefined;
  const asked = requests
    .slice(earlier ? requests.lastIndexOf(earlier) + 1 : 0)
    .map(({ body }) => JSON.stringify(body) ?? "")
    .filter((text) => text.includes(mark));
  const items = await itemsOf(json, fields);
  const constant = (text: string) =>
    text
      .replaceAll(mark, "#")
      .replaceAll(/"(cached_tokens|cache_write_tokens)":\d+/g, '"$1":0')
      .replaceAll(/"cached_tokens_per_turn":\[[\d,]*\]/g, '"cached_tokens_per_turn":0')
      .replaceAll(/"encrypted_content":"[^"]*"/g, '"encrypted_content":""')
      .replaceAll(/\bchatcmpl-tool-\w+/g, "call")
      .replaceAll(/\b([a-z]+)_[\w-]{16,}/g, "$1_")
      .replaceAll(/"(\w+_at)":\d+/g, '"$1":0');
  return {
    status: answer.status,
    param: error?.param ?? null,
    told: error ? `${error.param}: ${error.message}` : "",
    answer: JSON.parse(constant(JSON.stringify(json))) as JsonObject,
    asked: constant(asked.join("\n")),
    items: constant(items),
  };
}

/** The items that a request has stored. */
async function itemsOf({ id, object }: JsonObject, fields: JsonObject): Promise<string> {
  const path =
    object === "conversation" && "items" in fields
      ? `conversations/${id}/items`
      : object === "response" && Array.isArray(fields.input)
        ? `responses/${id}/input_items`
        : undefined;
  return path === undefined ? "" : (await gateway.fetch(`${gateway.url}/v1/${path}`)).text();
}

/** A valid request with these fields. */
function completed(kind: string, fields: JsonObject, mark: string): JsonObject {
  if (kind.startsWith("conversation")) return fields;
  const text = `Use your tools ${mark}`;
  const asking = { role: "user", content: text };
  const input = Array.isArray(fields.input)
    ? fields.input.flatMap((item) => inContext(item as JsonObject, asking))
    : typeof fields.input === "string"
      ? `${fields.input} ${text}`
      : text;
  const names = Object.keys(fields);
  const needed = Object.entries(NEEDED).filter(([name]) => names.includes(name));
  const approves = Array.isArray(input) && input.some(({ type }) => type === "mcp_approval_request");
  return {
    model: "simulator",
    ...(approves && { tools: TOOLS() }),
    ...Object.assign({}, ...needed.map(([, more]) => more())),
    ...fields,
    input,
  };
}

/** The other fields that a request needs for the effect of a field. */
const NEEDED: Record<string, () => JsonObject> = {
  tool_choice: () => ({ tools: TOOLS() }),
  parallel_tool_calls: () => ({ tools: TOOLS() }),
  max_tool_calls: () => ({ tools: TOOLS() }),
  stream_options: () => ({ stream: true }),
  top_logprobs: () => ({ include: ["message.output_text.logprobs"] }),
  reasoning: () => ({ model: "simulator-reasoning" }),
  "compact.reasoning": () => ({ model: "simulator-reasoning" }),
};

/** An item with the items that it needs, and with the question. */
function inContext(item: JsonObject, asking: JsonObject): JsonObject[] {
  const { type, id, call_id, approval_request_id } = item;
  const output = { call_id, output: "x" };
  switch (type) {
    case "function_call":
      return [item, { ...output, type: "function_call_output" }, asking];
    case "function_call_output":
      return [{ type: "function_call", call_id, name: "lookup", arguments: "{}" }, item, asking];
    case "custom_tool_call":
      return [item, { ...output, type: "custom_tool_call_output" }, asking];
    case "custom_tool_call_output":
      return [{ type: "custom_tool_call", call_id, name: "write", input: "x" }, item, asking];
    case "local_shell_call":
      return [item, { type: "local_shell_call_output", id: call_id, output: "x" }, asking];
    case "local_shell_call_output":
      return [
        { type: "local_shell_call", call_id: id, action: { type: "exec", command: ["ls"], env: {} } },
        item,
        asking,
      ];
    case "shell_call":
      return [
        item,
        {
          type: "shell_call_output",
          call_id,
          output: [{ stdout: "x", stderr: "", outcome: { type: "exit", exit_code: 0 } }],
        },
        asking,
      ];
    case "shell_call_output":
      return [{ type: "shell_call", call_id, action: { commands: ["ls"] } }, item, asking];
    case "apply_patch_call":
      return [item, { type: "apply_patch_call_output", call_id, status: "completed" }, asking];
    case "apply_patch_call_output":
      return [{ type: "apply_patch_call", call_id, operation: { type: "delete_file", path: "a" } }, item, asking];
    case "tool_search_call": {
      const tools = [{ type: "function", name: "found", parameters: {} }];
      return [item, { type: "tool_search_output", call_id, tools }, asking];
    }
    case "mcp_approval_request":
      return [item, { type: "mcp_approval_response", approval_request_id: id, approve: true }, asking];
    case "mcp_approval_response":
      return [
        { type: "mcp_approval_request", id: approval_request_id, server_label: "docs", name: "echo", arguments: "{}" },
        item,
        asking,
      ];
    case "reasoning":
      // Models get their reasoning since the last question.
      return [
        asking,
        item,
        { type: "function_call", call_id: "call_1", name: "lookup", arguments: "{}" },
        { type: "function_call_output", call_id: "call_1", output: "x" },
      ];
    case "compaction_trigger":
      return [asking, item];
    default:
      return [item, asking];
  }
}

const TOOLS = (): JsonObject[] => [
  { type: "function", name: "lookup", parameters: { type: "object", properties: { q: { type: "string" } } } },
  { type: "custom", name: "write" },
  { type: "shell" },
  { type: "apply_patch" },
  { type: "mcp", server_label: "docs", server_url: tools.url, require_approval: "never" },
  { type: "web_search_preview" },
  { type: "code_interpreter", container: { type: "auto" } },
];

async function newConversation(): Promise<string> {
  return (await gateway.openai.conversations.create({})).id;
}

async function send(kind: string, body: JsonObject): Promise<Response> {
  const post = (path: string, sent: JsonObject) =>
    gateway.fetch(gateway.url + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(sent),
    });
  switch (kind) {
    case "conversation":
      return post("/v1/conversations", body);
    case "conversation_update":
      return post(`/v1/conversations/${await newConversation()}`, body);
    case "conversation_items": {
      // One of its fields is in the query.
      const { include = [], ...items } = body;
      const query = (include as string[]).map((value) => `include[]=${value}`).join("&");
      return post(`/v1/conversations/${await newConversation()}/items?${query}`, items);
    }
    case "compact":
    case "input_tokens":
      return post(`/v1/responses/${kind}`, body);
    default:
      return post("/v1/responses", body);
  }
}

/** A vector store with one file for each set of attributes. The model finds all files. */
async function filledStore(...attributes: Record<string, string | number | boolean>[]): Promise<string> {
  const { files, vectorStores } = gateway.openai;
  const { id } = await vectorStores.create({});
  for (const [index, each] of attributes.entries()) {
    const text = new File([`All tools find it, and all queries: ${index}.`], `${attributes.length}-${index}.md`);
    const { id: file_id } = await files.create({ file: text, purpose: "assistants" });
    await vectorStores.files.createAndPoll(id, { file_id, attributes: each }, { pollIntervalMs: 20 });
  }
  return id;
}

async function samples(): Promise<Samples> {
  const created = await gateway.openai.responses.create({ model: "simulator", input: "Before" });
  const conversation = await gateway.openai.conversations.create({ items: [{ role: "user", content: "Before" }] });
  const compacted = await gateway.openai.responses.compact({ model: "simulator", input: "Before" });
  const compaction = compacted.output.find(({ type }) => type === "compaction");
  const sealed = compaction?.type === "compaction" ? compaction.encrypted_content : "";
  const schema = { type: "object", properties: { q: { type: "string" } }, required: ["q"] };
  const image = "data:image/png;base64,iVBORw0KGgo=";
  const [store, other] = [await filledStore({ x: "x" }, { x: "y" }, { x: 2 }, { x: true }), await filledStore({})];
  const [item] = (await gateway.openai.responses.inputItems.list(created.id)).data;
  const file = new File(["x"], "x.txt");
  const { id: given } = await gateway.openai.files.create({ file, purpose: "user_data" });
  const container = await gateway.openai.containers.create({ name: "x" });
  return {
    "container<auto>.file_ids": [[given]],
    "container<auto>.memory_limit": ["1g", "4g"],
    "input<item_reference>.id": [item?.id],
    "items<item_reference>.id": [item?.id],
    model: ["simulator", "simulator-reasoning"],
    "tools<file_search>": [{ vector_store_ids: [store] }],
    "tools<file_search>.vector_store_ids": [[store], [other]],
    "filters<and>.filters": [[{ type: "eq", key: "x", value: "x" }], [{ type: "eq", key: "x", value: "y" }]],
    "input<file_search_call>": [{ queries: ["x"], results: [{ file_id: "x", filename: "x", text: "x" }] }],
    previous_response_id: [created.id],
    conversation: [conversation.id, { id: conversation.id }],
    "conversation.id": [conversation.id],
    "context_management.type": ["compaction"],
    "context_management.compact_threshold": [1000],
    "moderation.model": ["guard"],
    "multi_agent.enabled": [false, true],
    "reasoning.mode": ["standard", "pro"],
    max_output_tokens: [2],
    top_p: [0.5],
    top_logprobs: [2],
    max_tool_calls: [1],
    "tools.annotations": [{ readOnlyHint: true }],
    "input<function_call_output>": [{ call_id: "call_1" }],
    "input<mcp_approval_request>.server_label": ["docs"],
    "input<mcp_approval_request>": [{ server_label: "docs", name: "echo" }],
    "input<configuration_update>.text": [{ format: { type: "json_schema", name: "x", schema } }],
    "input<configuration_update>": [{ reasoning: { effort: "low" } }],
    "input<configuration_update>.reasoning": [{ effort: "high" }],
    "input<reasoning>.summary": [[], [{ type: "summary_text", text: "y" }]],
    "input<reasoning>.encrypted_content": ["y"],
    metadata: [{ a: "b" }],
    "content<input_image>": [{ image_url: image }],
    image_url: [image, "data:image/png;base64,iVBORw0KGgp="],
    file_data: ["data:text/plain;base64,SGVsbG8=", "data:text/plain;base64,SGVsbG8h"],
    "content<input_file>": [{ file_data: "data:text/plain;base64,SGVsbG8=" }],
    "output<input_file>": [{ file_data: "data:text/plain;base64,SGVsbG8=" }],
    "output<input_image>": [{ image_url: image }],
    "input<function_call>.arguments": ["{}", '{"q":"x"}'],
    "input<mcp_call>.arguments": ["{}", '{"q":"x"}'],
    "input<mcp_approval_request>.arguments": ["{}", '{"q":"x"}'],
    "input<tool_search_call>.arguments": [{ query: "x" }, { query: "y" }],
    "input<compaction>.encrypted_content": [sealed],
    parameters: [schema, { type: "object", properties: {} }],
    output_schema: [schema],
    schema: [schema, { type: "object", properties: { r: { type: "string" } }, required: ["r"] }],
    input_schema: [schema],
    "tools<tool_search>": [{ execution: "client" }],
    "tools<tool_search>.execution": ["client", "server"],
    "tools<mcp>": [{ server_url: tools.url, require_approval: "never" }],
    server_url: [tools.url],
    "tools<mcp>.server_label": ["docs", "other"],
    "tools<code_interpreter>.container": [{ type: "auto" }, container.id],
    "tools<shell>.environment": [{ type: "local" }, { type: "container_auto" }],
    "tool_choice<function>.name": ["lookup"],
    "tool_choice<custom>.name": ["write"],
    "tool_choice<mcp>.server_label": ["docs"],
    "tool_choice<mcp>.name": ["echo"],
    "tool_choice<allowed_tools>.tools": [[{ type: "function", name: "lookup" }], [{ type: "custom", name: "write" }]],
    "filters.allowed_domains": [["example.com"]],
    allowed_tools: [["echo"], ["none"], { read_only: false }],
    "tools<web_search_preview>.search_content_types": [["text"], ["image"]],
    "format<grammar>.definition": ["a+", "b+"],
    "format<grammar>.syntax": ["regex"],
  };
}
