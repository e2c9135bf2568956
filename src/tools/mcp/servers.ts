import type { CalledTool, PendingCall, ToolOutcome } from "../../contract/tool-call.ts";
import type { ApprovedCall, ListedTool, ListedTools, UnlistedServer } from "../../contract/tool-session.ts";
import type { Item } from "../../items/registry.ts";
import type { CreateRequest } from "../../protocol/create-request.ts";
import type { McpServerTool, ToolFilter } from "../../protocol/hosted-tools.ts";
import { chosenTools, type FunctionTool } from "../../protocol/tools.ts";
import { mcpGuardOf } from "../guard.ts";
import type { PluginSession, SessionOptions } from "../plugin.ts";
import { ToolFault, toToolFault } from "../tool-fault.ts";
import { McpConnection } from "./connection.ts";

/** A tool of an MCP server, as a call of it is kept. */
export interface McpTool extends CalledTool {
  readonly kind: "mcp";
  /** The server's label. */
  readonly label: string;
  readonly name: string;
  /** A call of it needs the client's approval. */
  readonly approval: boolean;
}

interface UnlistedMcpServer extends UnlistedServer {
  server: McpServerTool;
}

/** The MCP servers that one turn's request names: their tools, and their connections. */
export class McpServers implements PluginSession {
  readonly #turn: SessionOptions;
  readonly #servers: readonly McpServerTool[];
  /** Their tools by the name that the model sees. */
  readonly #functions = new Map<string, { definition: FunctionTool; tool: McpTool }>();
  readonly #names: FreeNames;
  /** What the choice of tools leaves, as `label` (a label has no colon) and `label:tool`; undefined is all. */
  readonly #chosen: ReadonlySet<string> | undefined;
  /** Labels of servers whose tools are known. */
  readonly #listed = new Set<string>();
  readonly #connections = new Map<string, McpConnection>();
  readonly approved: ApprovedCall[] = [];

  constructor(turn: SessionOptions) {
    const { request, config, clientFunctions } = turn;
    this.#turn = turn;
    this.#servers = (request.tools ?? [])
      .filter((tool) => tool.type === "mcp")
      .filter((server) => !config.builtinLabels.has(server.server_label));
    this.#names = new FreeNames((name) => !this.#functions.has(name) && !clientFunctions.has(name));
    this.#chosen = chosenMcpTools(request.tool_choice);
    for (const server of this.#servers) this.#takeEarlierList(server);
  }

  get offered(): { functions: FunctionTool[] } {
    return { functions: [...this.#functions.values()].map(({ definition }) => definition) };
  }

  resolve(name: string): McpTool | undefined {
    return this.#functions.get(name)?.tool;
  }

  offers(name: string): boolean {
    const tool = this.#functions.get(name)?.tool;
    if (!tool) return true;
    if (!this.#chosen) return true;
    return this.#chosen.has(tool.label) || this.#chosen.has(`${tool.label}:${tool.name}`);
  }

  get unlisted(): UnlistedMcpServer[] {
    if (this.#turn.request.tool_choice === "none") return [];
    return this.#servers
      .filter((server) => !this.#listed.has(server.server_label))
      .map((server) => ({ server_label: server.server_label, origin: listOrigin(server), server }));
  }

  /** Lists the tools of a server. What prevents it is in the item, and the turn goes on without them. */
  async list({ server }: UnlistedMcpServer, signal: AbortSignal, traceparent?: string): Promise<ListedTools> {
    try {
      const listed = await this.#connection(server.server_label).listTools(signal, traceparent);
      const tools = listed.filter((tool) => isAllowed(server.allowed_tools, tool));
      this.#take(server, tools);
      return { tools };
    } catch (error) {
      signal.throwIfAborted();
      return { error: toToolFault(error).message };
    }
  }

  /** Takes an approved call, unless its tool is not among those of the request. */
  approve(asked: Extract<Item, { type: "mcp_approval_request" }>, request: string): boolean {
    const { server_label: label, name } = asked;
    const server = this.#servers.find((each) => each.server_label === label);
    if (!server || !mayBeCalled(server, name)) return false;
    const tool: McpTool = { kind: "mcp", label, name, approval: false };
    this.approved.push({ tool, name: functionName(label, name), arguments: asked.arguments, request });
    return true;
  }

  async run(call: PendingCall, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome> {
    const { label, name } = call.tool as McpTool;
    return this.#connection(label).call(name, call.arguments, signal, traceparent);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#connections.values()].map((connection) => connection.close(undefined)));
  }

  /** What this turn has listed before a crash stays as it was, also where that failed; else the list of an earlier turn. */
  #takeEarlierList(server: McpServerTool): void {
    const { output, items, replays } = this.#turn;
    const { server_label: label } = server;
    const own = (output as Item[]).find((item) => isListOf(item, label));
    const list = own ?? items.findLast((item) => isListOf(item, label) && !hasFailed(item));
    if (list?.type !== "mcp_list_tools") return;
    const origin = replays.find((replay) => replay.item === list.id)?.origin;
    if (own || isUsable(list.tools, origin, server)) this.#take(server, list.tools);
  }

  #take(server: McpServerTool, tools: readonly ListedTool[]): void {
    const { server_label: label, require_approval: approval } = server;
    this.#listed.add(label);
    for (const tool of tools) {
      if (!isAllowed(server.allowed_tools, tool)) continue;
      const name = this.#names.find(functionName(label, tool.name));
      this.#functions.set(name, {
        definition: {
          type: "function",
          name,
          description: tool.description || server.server_description || null,
          parameters: tool.input_schema,
          strict: null,
        },
        tool: { kind: "mcp", label, name: tool.name, approval: needsApproval(approval, tool) },
      });
    }
  }

  #connection(label: string): McpConnection {
    const known = this.#connections.get(label);
    if (known) return known;
    const { access: all, config } = this.#turn;
    const connection = new McpConnection(this.#turn, () => {
      const access = Object.hasOwn(all, label) ? all[label] : undefined;
      if (!access) {
        const message = `The credentials for the MCP server '${label}' are not kept over a restart.`;
        throw new ToolFault("refused_address", message);
      }
      const { server_url: url, authorization, headers } = access;
      return {
        server: { label, url, ...(authorization && { authorization }), ...(headers && { headers }) },
        guard: mcpGuardOf(config),
      };
    });
    this.#connections.set(label, connection);
    return connection;
  }
}

function chosenMcpTools(choice: CreateRequest["tool_choice"]): ReadonlySet<string> | undefined {
  const names = chosenTools(choice)?.flatMap((each) => {
    if (each.type !== "mcp") return [];
    return "name" in each ? [`${each.server_label}:${each.name}`] : [each.server_label];
  });
  return names && new Set(names);
}

function isListOf(item: Item, label: string): boolean {
  return item.type === "mcp_list_tools" && item.server_label === label;
}

function hasFailed(item: Item): boolean {
  return "error" in item && item.error != null;
}

/** What is left of a name that gets a number: 64 characters hold it with one of three digits. */
const MAX_STEM_LENGTH = 60;

/** The name under which a model sees a tool of an MCP server: `label__tool`, in the letters that functions may have. */
export function functionName(label: string, tool: string): string {
  return `${label}__${tool}`.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
}

/** Finds names that are free. */
export class FreeNames {
  readonly #isFree: (name: string) => boolean;
  /** The next number to try for names that are not free, by what stands before it. */
  readonly #numbered = new Map<string, number>();

  constructor(isFree: (name: string) => boolean) {
    this.#isFree = isFree;
  }

  /** The name itself, or the first of `name_2`, `name_3`, … that is free. */
  find(wanted: string): string {
    if (this.#isFree(wanted)) return wanted;
    const stem = wanted.slice(0, MAX_STEM_LENGTH);
    let count = this.#numbered.get(stem) ?? 2;
    while (!this.#isFree(`${stem}_${count}`)) count += 1;
    this.#numbered.set(stem, count + 1);
    return `${stem}_${count}`;
  }
}

/** Which tools of an MCP server a request allows, and which calls of them need the client's approval. */

/** The names that are allowed, where they are given as such. */
function namesOf(allowed: McpServerTool["allowed_tools"]): string[] | undefined {
  return Array.isArray(allowed) ? allowed : allowed?.tool_names;
}

const nameSets = new WeakMap<readonly string[], ReadonlySet<string>>();

/** Whether a list has a name. A request may list as many as a server has tools: each list is made a set once. */
function includes(names: readonly string[], name: string): boolean {
  const set = nameSets.get(names) ?? new Set(names);
  nameSets.set(names, set);
  return set.has(name);
}

export function isAllowed(allowed: McpServerTool["allowed_tools"], tool: ListedTool): boolean {
  if (allowed === undefined) return true;
  return Array.isArray(allowed) ? includes(allowed, tool.name) : isMatched(allowed, tool);
}

/** A filter without any condition matches all; one with several, what meets each. */
function isMatched(filter: ToolFilter, tool: ListedTool): boolean {
  if (filter.tool_names && !includes(filter.tool_names, tool.name)) return false;
  return filter.read_only === undefined || (tool.annotations?.readOnlyHint === true) === filter.read_only;
}

/** `always` is the default, of what a filter does not name too. */
export function needsApproval(approval: McpServerTool["require_approval"], tool: ListedTool): boolean {
  if (typeof approval === "string") return approval === "always";
  if (approval.always && isMatched(approval.always, tool)) return true;
  return !(approval.never && isMatched(approval.never, tool));
}

/** Whether a tool may be called by its name alone; whether it only reads is known when tools are listed. */
export function mayBeCalled({ allowed_tools: allowed }: McpServerTool, name: string): boolean {
  const names = namesOf(allowed);
  return names === undefined || includes(names, name);
}

/** What a list of a server's tools depends on: a list of another origin may lack some. */
export function listOrigin({ server_url: url, allowed_tools: allowed }: McpServerTool): string {
  const { origin, pathname } = url !== undefined && URL.canParse(url) ? new URL(url) : { origin: "", pathname: "" };
  return JSON.stringify([origin + pathname, allowed ?? null]);
}

/** Whether a list that an earlier turn has made has all that this one allows. One of unknown origin is taken at its word. */
export function isUsable(listed: readonly ListedTool[], origin: string | undefined, server: McpServerTool): boolean {
  const now = listOrigin(server);
  if (origin === now) return true;
  const isSameServer = origin === undefined || JSON.parse(origin)[0] === JSON.parse(now)[0];
  const names = namesOf(server.allowed_tools);
  if (!names) return origin === undefined;
  const has = new Set(listed.map((tool) => tool.name));
  return isSameServer && names.every((name) => has.has(name));
}
