import type { CalledTool, PendingCall, ToolOutcome } from "../../contract/tool-call.ts";
import type { ApprovedCall, ListedTool, ListedTools, UnlistedServer } from "../../contract/tool-session.ts";
import type { Item } from "../../items/registry.ts";
import type { CreateRequest } from "../../protocol/create-request.ts";
import type { McpServerTool } from "../../protocol/hosted-tools.ts";
import { chosenTools, type FunctionTool } from "../../protocol/tools.ts";
import { mcpGuardOf } from "../guard.ts";
import type { PluginSession, SessionOptions } from "../plugin.ts";
import { ToolFault, toToolFault } from "../tool-fault.ts";
import { McpConnection } from "./connection.ts";
import { FreeNames, functionName } from "./names.ts";
import { isAllowed, isUsable, listOrigin, mayBeCalled, needsApproval } from "./policy.ts";

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
