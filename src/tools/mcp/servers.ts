import { McpConnection, type McpTarget, ToolFault, toToolFault } from "@responses-edge/hosted-tools/mcp-client";
import type { McpServerTool, ToolFilter } from "@responses-edge/responses-api/hosted-tools";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";
import { chosenTools, type FunctionTool, type McpAccess } from "@responses-edge/responses-api/tools";
import type {
  ApprovedCall,
  CalledTool,
  ListedTool,
  PendingCall,
  ToolOutcome,
  UnlistedServer,
} from "@responses-edge/turn/contract/tool-session";
import type { ToolConfig } from "../../config/tools.ts";
import { type PluginSession, refuseArguments, type SessionOptions } from "../plugin.ts";
import { connectorName, connectorOf, targetOf } from "./connectors.ts";

/** A tool of an MCP server, as its calls refer to it. */
export interface McpTool extends CalledTool {
  readonly kind: "mcp";
  /** The server's label. */
  readonly label: string;
  readonly name: string;
  /** True if its calls need the client's approval. */
  readonly approval: boolean;
}

/** The MCP servers of a turn's request: their tools, and their connections. */
export class McpServers implements PluginSession {
  readonly #turn: SessionOptions;
  readonly #servers: McpServerTool[] = [];
  readonly tools = new Map<string, McpTool>();
  /** The next number to try for a name that is taken, by the part of the name before the number. */
  readonly #numbered = new Map<string, number>();
  readonly #connections = new Map<string, McpConnection>();
  readonly offered: { functions: FunctionTool[] } = { functions: [] };
  readonly offers: PluginSession["offers"];
  readonly unlisted: UnlistedServer[] = [];
  readonly approved: ApprovedCall[] = [];

  constructor(turn: SessionOptions) {
    const { request, config } = turn;
    this.#turn = turn;
    const { tool_choice: choice } = request;
    const names = (choice == null ? undefined : chosenTools(choice))?.flatMap((each) => {
      if (each.type !== "mcp") return [];
      return "name" in each ? `${each.server_label}:${each.name}` : each.server_label;
    });
    /** The choice of tools leaves these, as `label` (a label has no colon) and `label:tool`. */
    const chosen = names && new Set(names);
    if (chosen) {
      this.offers = (tool) => {
        const { label, name } = tool as McpTool;
        return chosen.has(label) || chosen.has(`${label}:${name}`);
      };
    }
    for (const tool of request.tools ?? []) {
      if (tool.type !== "mcp" || config.builtinLabels.has(tool.server_label)) continue;
      this.#servers.push(tool);
      const { server_label } = tool;
      const earlier = turn.hasOnlyText ? undefined : this.#earlierList(tool);
      if (earlier) this.#take(tool, earlier);
      else if (request.tool_choice !== "none") {
        this.unlisted.push({
          server_label,
          origin: listOrigin(tool),
          // A server that fails has the reason in its item, and the turn continues without its tools.
          list: async (signal, traceparent) => {
            try {
              const tools = await this.#connection(server_label).listTools({ signal, traceparent });
              return { tools: this.#take(tool, tools) };
            } catch (error) {
              signal.throwIfAborted();
              return { error: toToolFault(error).message };
            }
          },
        });
      }
    }
  }

  /** Takes an approved call, unless its tool is not among those of the request. */
  approve(asked: Extract<Item, { type: "mcp_approval_request" }>, request: string): boolean {
    const { server_label: label, name } = asked;
    const server = this.#servers.find((each) => each.server_label === label);
    // A filter by `read_only` is applied when tools are listed.
    const names = server && namesOf(server.allowed_tools);
    if (!server || (names && !includes(names, name))) return false;
    const tool: McpTool = { kind: "mcp", label, name, approval: false };
    const { caller, call_id } = asked;
    const by = caller?.type === "program" && call_id !== undefined ? { caller, call_id } : undefined;
    this.approved.push({ tool, name: functionName(label, name), arguments: asked.arguments, request, by });
    return true;
  }

  asked(tool: CalledTool): McpServerTool | undefined {
    const { label } = tool as McpTool;
    return this.#servers.find(({ server_label }) => server_label === label);
  }

  async run(call: PendingCall, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome> {
    const { label, name } = call.tool as McpTool;
    const isListed = this.tools.get(call.name)?.name === name;
    const schema = isListed && this.offered.functions.find((each) => each.name === call.name)?.parameters;
    if (schema) refuseArguments(parseArguments(call.arguments), schema);
    return this.#connection(label).callTool(name, call.arguments, { signal, traceparent });
  }

  async close(): Promise<void> {
    const closing: Promise<void>[] = [];
    for (const connection of this.#connections.values()) closing.push(connection.close());
    await Promise.all(closing);
  }

  /** A list that this turn has made before a crash stays as it was, also where that failed; else that of an earlier turn does. */
  #earlierList(server: McpServerTool): readonly ListedTool[] | undefined {
    const { output, items, replays } = this.#turn;
    for (const item of output as Item[]) {
      if (item.type === "mcp_list_tools" && item.server_label === server.server_label) return item.tools;
    }
    let last: Extract<Item, { type: "mcp_list_tools" }> | undefined;
    for (const item of items) {
      if (item.type !== "mcp_list_tools" || item.server_label !== server.server_label) continue;
      if (item.error == null) last = item;
    }
    if (!last) return undefined;
    const { id, tools } = last;
    const origin = replays.find((replay) => replay.item === id)?.origin;
    return isUsable(tools, origin, server) ? tools : undefined;
  }

  /** Takes a server's tools, and gives those that the request allows. */
  #take(server: McpServerTool, listed: readonly ListedTool[]): ListedTool[] {
    const { server_label: label, allowed_tools: allowed, require_approval: approval } = server;
    const { clientFunctions } = this.#turn;
    const tools: ListedTool[] = [];
    for (const tool of listed) {
      if (allowed !== undefined && !isAllowed(allowed, tool)) continue;
      tools.push(tool);
      // The name itself, or the first of `name_2`, `name_3`, … that is not taken.
      const wanted = functionName(label, tool.name);
      const stem = wanted.slice(0, MAX_STEM_LENGTH);
      let count = this.#numbered.get(stem) ?? 2;
      let name = wanted;
      for (; this.tools.has(name) || clientFunctions.has(name); count += 1) name = `${stem}_${count}`;
      if (name !== wanted) this.#numbered.set(stem, count);
      this.offered.functions.push({
        type: "function",
        name,
        description: tool.description || server.server_description || null,
        parameters: tool.input_schema,
        strict: null,
      });
      const asks = typeof approval === "string" ? approval === "always" : needsApproval(approval, tool);
      this.tools.set(name, { kind: "mcp", label, name: tool.name, approval: asks });
    }
    return tools;
  }

  #connection(label: string): McpConnection {
    const known = this.#connections.get(label);
    if (known) return known;
    const { access: all, config, deadline } = this.#turn;
    const server = this.#servers.find((each) => each.server_label === label);
    const connector = server && connectorOf(server, config);
    const access = Object.hasOwn(all, label) ? all[label] : undefined;
    const target = connector ? targetOf(connector, config) : access && clientTarget(access, config);
    if (!target) {
      const message = `The credentials for the MCP server '${label}' were lost in a restart, because they are never stored.`;
      throw new ToolFault("refused_address", message);
    }
    const connection = new McpConnection({
      label,
      target,
      timeouts: { callMs: config.callTimeoutMs },
      deadline,
      maxOutputBytes: config.outputBytes,
    });
    this.#connections.set(label, connection);
    return connection;
  }
}

function clientTarget(
  { server_url: url, authorization, headers }: McpAccess,
  { mcpGuard: guard }: ToolConfig,
): McpTarget {
  return { url, headers, guard, authorization: authorization || null };
}

/** Characters that a name with a number keeps: 64 characters then hold a number of three digits. */
const MAX_STEM_LENGTH = 60;

/** The name by which a model sees a tool of an MCP server: `label__tool`, in the characters that names of functions may have. */
export function functionName(label: string, tool: string): string {
  return `${label}__${tool}`.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
}

/** The allowed names, if they are given as names. */
function namesOf(allowed: McpServerTool["allowed_tools"]): string[] | undefined {
  return Array.isArray(allowed) ? allowed : allowed?.tool_names;
}

const nameSets = new WeakMap<readonly string[], ReadonlySet<string>>();

/** True if a list has a name. A request may list as many names as a server has tools, so each list is made a set once. */
function includes(names: readonly string[], name: string): boolean {
  const set = nameSets.get(names) ?? new Set(names);
  nameSets.set(names, set);
  return set.has(name);
}

function isAllowed(allowed: string[] | ToolFilter, tool: ListedTool): boolean {
  return Array.isArray(allowed) ? includes(allowed, tool.name) : isMatched(allowed, tool);
}

/** A filter without conditions matches everything; one with several matches tools that meet all of them. */
function isMatched(filter: ToolFilter, tool: ListedTool): boolean {
  if (filter.tool_names && !includes(filter.tool_names, tool.name)) return false;
  return filter.read_only === undefined || (tool.annotations?.readOnlyHint === true) === filter.read_only;
}

/** `always` is the default, of what a filter does not name too. */
function needsApproval(approval: Exclude<McpServerTool["require_approval"], string>, tool: ListedTool): boolean {
  if (approval.always && isMatched(approval.always, tool)) return true;
  return !(approval.never && isMatched(approval.never, tool));
}

/** The inputs that a list of a server's tools depends on: a list with other inputs may lack some. */
function listOrigin(server: McpServerTool): string {
  const { server_url: url, allowed_tools: allowed } = server;
  const connector = connectorName(server);
  if (connector !== undefined) return JSON.stringify([`connector:${connector}`, allowed ?? null]);
  const { origin, pathname } = url !== undefined && URL.canParse(url) ? new URL(url) : { origin: "", pathname: "" };
  return JSON.stringify([origin + pathname, allowed ?? null]);
}

/** True if an earlier turn's list has everything that this request allows. A list of unknown origin is trusted. */
function isUsable(listed: readonly ListedTool[], origin: string | undefined, server: McpServerTool): boolean {
  const now = listOrigin(server);
  if (origin === now) return true;
  const isSameServer = origin === undefined || JSON.parse(origin)[0] === JSON.parse(now)[0];
  const names = namesOf(server.allowed_tools);
  if (!names) return origin === undefined;
  const has = new Set(listed.map((tool) => tool.name));
  return isSameServer && names.every((name) => has.has(name));
}
