import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { type CallToolResult, createMcpHandler, Server, type Tool } from "@modelcontextprotocol/server";
import type {
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseOutputItem,
  ResponseStreamEvent,
  Tool as ResponseTool,
} from "openai/resources/responses/responses";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import { GPT_OSS } from "./harmony-support.ts";
import type { Gateway } from "./support.ts";
import { ended } from "./turns.ts";

/** Helpers of the tests of hosted tools. */

/** The models, one for each engine. */
export const MODELS = ["simulator", GPT_OSS];

export type Way = "json" | "stream" | "background";
export const WAYS: Way[] = ["json", "stream", "background"];

/** Every model in every way. */
export const EVERY_WAY = MODELS.flatMap((model) => WAYS.map((way) => [model, way] as const));

export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
  headers: Record<string, string>;
  /** The URL's path and query. */
  target: string;
  /** Unix milliseconds. */
  startedAt: number;
  endedAt: number | undefined;
  /** Aborted when the caller disconnects before its answer. */
  signal: AbortSignal;
}

export interface TestTool {
  description?: string;
  /** The properties that the simulated model fills in. All are required. */
  properties?: NonNullable<Tool["inputSchema"]["properties"]>;
  readOnly?: boolean;
  run: (args: Record<string, unknown>, call: ToolCall) => CallToolResult | string | Promise<CallToolResult | string>;
}

/** An MCP server of a few functions, on a loopback port. */
export interface ToolServer {
  url: string;
  calls: ToolCall[];
  /** The number of times that its tools were listed. */
  lists: number;
  /** The headers of all requests. */
  headers: Record<string, string>[];
  close(): Promise<void>;
}

export async function startTools(tools: Record<string, TestTool>): Promise<ToolServer> {
  const calls: ToolCall[] = [];
  const seen: Record<string, string>[] = [];
  const counts = { lists: 0 };
  const handle = (request: Request): Promise<globalThis.Response> => {
    const { pathname, search } = new URL(request.url);
    const headers = Object.fromEntries(request.headers);
    seen.push(headers);
    return createMcpHandler(() => {
      const server = new Server({ name: "test", version: "1.0.0" }, { capabilities: { tools: {} } });
      server.setRequestHandler("tools/list", () => {
        counts.lists += 1;
        return { tools: Object.entries(tools).map(([name, tool]) => definitionOf(name, tool)) };
      });
      server.setRequestHandler("tools/call", async ({ params }) => {
        const call: ToolCall = {
          name: params.name,
          arguments: params.arguments ?? {},
          headers,
          target: pathname + search,
          startedAt: Date.now(),
          endedAt: undefined,
          signal: request.signal,
        };
        calls.push(call);
        const tool = tools[params.name];
        if (!tool) throw new Error(`unknown tool ${params.name}`);
        const result = await tool.run(call.arguments, call);
        call.endedAt = Date.now();
        return typeof result === "string" ? { content: [{ type: "text", text: result }] } : result;
      });
      return server;
    }).fetch(request);
  };
  const server = createServer(toNodeHandler({ fetch: handle }));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    calls,
    get lists() {
      return counts.lists;
    },
    headers: seen,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function definitionOf(name: string, { description, properties = {}, readOnly }: TestTool): Tool {
  return {
    name,
    description: description ?? `The tool ${name}.`,
    inputSchema: {
      type: "object",
      properties,
      required: Object.keys(properties),
    },
    ...(readOnly !== undefined && { annotations: { readOnlyHint: readOnly } }),
  };
}

export type McpTool = Extract<ResponseTool, { type: "mcp" }>;

/** The tool of a request for a server whose tools need no approval. */
export function mcp({ url }: Pick<ToolServer, "url">, fields: Partial<McpTool> = {}): McpTool {
  return { type: "mcp", server_label: "docs", server_url: url, require_approval: "never", ...fields };
}

export interface Answer {
  response: Response;
  /** The events of a stream. */
  events: ResponseStreamEvent[];
}

/** Creates a response in one of the three ways, and waits for its end. */
export async function ask(
  gateway: Gateway,
  way: Way,
  body: ResponseCreateParamsNonStreaming,
  openai = gateway.openai,
): Promise<Answer> {
  if (way === "json") return { response: await openai.responses.create(body), events: [] };
  if (way === "background") {
    const begun = await openai.responses.create({ ...body, background: true });
    return { response: await ended({ openai, vllm: gateway.vllm }, begun.id), events: [] };
  }
  const events = await Array.fromAsync(await openai.responses.create({ ...body, stream: true }));
  const last = events.at(-1);
  if (!last || !("response" in last)) throw new Error(`The last event is ${last?.type}`);
  // The client adds `output_text` only to JSON bodies.
  const response = { ...last.response, output_text: textOf(last.response) };
  return { response, events };
}

export function textOf({ output }: Pick<Response, "output">): string {
  return output
    .flatMap((item) => (item.type === "message" ? item.content : []))
    .map((part) => (part.type === "output_text" ? part.text : ""))
    .join("");
}

/** A model that repeats the user's text, token by token: the scripts, one per round. */
export const REPEATER = `${GPT_OSS}?script=user`;

/** Scripts as a user's text for {@link REPEATER}. */
export function scripts(...rounds: string[]): string {
  return rounds.join("\u001e").replaceAll(/<(\|.*?\|)>/g, "‹$1›");
}

/** A call in gpt-oss's form. */
export function written(name: string, text = "{}"): string {
  return `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>${text}<|call|>`;
}

/** The types of the items, without reasoning, which only one of the models has. */
export function typesIn({ output }: Pick<Response, "output">): string[] {
  return output.map(({ type }) => type).filter((type) => type !== "reasoning");
}

export type ItemOf<Type extends ResponseOutputItem["type"]> = Extract<ResponseOutputItem, { type: Type }>;

export function itemsOfType<Type extends ResponseOutputItem["type"]>(
  { output }: Pick<Response, "output">,
  type: Type,
): ItemOf<Type>[] {
  return output.filter((item): item is ItemOf<Type> => item.type === type);
}

export function onlyItem<Type extends ResponseOutputItem["type"]>(
  response: Pick<Response, "output">,
  type: Type,
): ItemOf<Type> {
  const [item, ...more] = itemsOfType(response, type);
  if (!item || more.length > 0) throw new Error(`Expected one ${type}, got ${JSON.stringify(response.output)}`);
  return item;
}

export interface ChatMessage {
  role: string;
  content?: unknown;
  tool_calls?: { id: string; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
}

/** The bodies of the requests for an answer that reached "vLLM", oldest first. */
export function generations({ vllm }: Pick<Gateway, "vllm">): JsonObject[] {
  return vllm.simulator.requests.flatMap(({ path, body }) =>
    /^\/v1\/(chat\/)?completions$/.test(path) && isObject(body) ? [body] : [],
  );
}

/** The messages of a chat prompt. Throws for a call without its answer, which vLLM's templates cannot render. */
export function chatMessages(body: JsonObject | undefined): ChatMessage[] {
  const messages = (body?.messages ?? []) as unknown as ChatMessage[];
  let open: string[] = [];
  for (const { role, tool_calls, tool_call_id } of messages) {
    if (role === "tool") {
      if (tool_call_id === undefined || !open.includes(tool_call_id)) throw new Error(`No call ${tool_call_id}`);
      open = open.filter((id) => id !== tool_call_id);
      continue;
    }
    if (open.length > 0) throw new Error(`Calls without an answer: ${open.join()} in ${JSON.stringify(messages)}`);
    open = (tool_calls ?? []).map(({ id }) => id);
    if (new Set(open).size < open.length) throw new Error(`A call id comes twice: ${open.join()}`);
  }
  if (open.length > 0) throw new Error(`Calls without an answer: ${open.join()}`);
  return messages;
}

/** Short forms of a chat prompt's messages: `assistant: add(…)`, `tool: 2`. */
export function shortly(body: JsonObject | undefined): string[] {
  return chatMessages(body).map(({ role, content, tool_calls }) => {
    const calls = (tool_calls ?? []).map(({ function: { name, arguments: text } }) => `${name}(${text})`);
    return `${role}: ${[...(content === undefined ? [] : [String(content)]), ...calls].join(" ")}`;
  });
}

/** The items that a client returns that keeps everything itself. */
export function givenBack({ output }: Pick<Response, "output">): ResponseInputItem[] {
  return output as ResponseInputItem[];
}
