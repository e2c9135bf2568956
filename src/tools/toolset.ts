import type { BuiltinName, ToolConfig } from "../config.ts";
import type { Replay, ServerTools, ToolDescription, ToolNamespace } from "../contract/engine.ts";
import type { McpAccess } from "../contract/mcp-access.ts";
import type { PendingCall, ServerTool, ToolOutcome } from "../contract/server-tool.ts";
import { approvalRequests, mcpFunctionName } from "../contract/tool-exchange.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type { Item } from "../protocol/items.ts";
import { isPublicUrl } from "../protocol/public-url.ts";
import {
  choiceKey,
  chosenTools,
  type FunctionTool,
  type McpTool as McpServerTool,
  type Tool,
  toolKey,
  type WebSearchTool,
} from "../protocol/tools.ts";
import type { Browser } from "./browser/browser.ts";
import type { CitationLookup } from "./browser/citations.ts";
import type { BrowserState } from "./browser/state.ts";
import { hasSearch, newBrowser } from "./browser/web.ts";
import {
  BROWSER_FUNCTIONS,
  BROWSER_NAMESPACE,
  CONTAINER_FUNCTIONS,
  CONTAINER_NAMESPACE,
  PYTHON_FUNCTIONS,
  PYTHON_NAMESPACE,
} from "./definitions.ts";
import { isToolServer } from "./guard.ts";
import type { McpTool } from "./mcp/client.ts";
import { isAllowed, isUsable, mayBeCalled, needsApproval } from "./mcp/policy.ts";
import { ToolRunner } from "./tool-runner.ts";

export interface ToolsetOptions {
  request: CreateRequest;
  config: ToolConfig;
  /** By server label. One that is missing was not kept over a restart. */
  access: Readonly<Record<string, McpAccess>>;
  /** History and input, and the raw messages behind them. */
  items: readonly Item[];
  /** This turn's own part of them. */
  input: readonly Item[];
  replays: readonly Replay[];
  /** Items that the turn has put out before a crash. */
  output: readonly { type: string }[];
  /** Names the tenant and the conversation to the operator's tool servers, without telling who they are. */
  sessionOf: (container: string) => string;
  /** `container_id` of a turn that names none. */
  ownContainer: string;
}

/** An approved call, to be made before the model is asked. */
export interface ApprovedCall {
  tool: Extract<ServerTool, { kind: "mcp" }>;
  name: string;
  arguments: string;
  /** The id of the request that the client has approved. */
  request: string;
}

const NAMESPACES: Record<BuiltinName, ToolNamespace> = {
  browser: BROWSER_NAMESPACE,
  python: PYTHON_NAMESPACE,
  container: CONTAINER_NAMESPACE,
};

const FUNCTIONS: Record<BuiltinName, readonly ToolDescription[]> = {
  browser: BROWSER_FUNCTIONS,
  python: PYTHON_FUNCTIONS,
  container: CONTAINER_FUNCTIONS,
};

/** Calls that one request may approve: all of them are made before the model is asked. */
const MAX_APPROVED_CALLS = 128;

/** What is left of a name that gets a number: 64 characters hold it with one of three digits. */
const MAX_STEM_LENGTH = 60;

/**
 * The tools of one turn that this server runs: which there are, what the model gets to see of them, which of them it
 * means by a name.
 */
export class Toolset {
  readonly #options: ToolsetOptions;
  readonly #mcp: readonly McpServerTool[];
  readonly #builtins: ReadonlySet<BuiltinName>;
  /** Functions of the client's: each comes before a tool of ours that has the same name. */
  readonly #clients: ReadonlySet<string>;
  /** Tools of MCP servers by the name that the model sees. */
  readonly #functions = new Map<string, { definition: FunctionTool; tool: Extract<ServerTool, { kind: "mcp" }> }>();
  /** What the choice of tools leaves of MCP servers, as `label` (a label has no colon) and `label:tool`; undefined is all. */
  readonly #chosen: ReadonlySet<string> | undefined;
  /** The next number to try for names that are not free, by what stands before it. */
  readonly #numbered = new Map<string, number>();
  readonly #listed = new Set<string>();
  readonly approved: ApprovedCall[] = [];
  readonly #browser: Browser | undefined;
  readonly #runner: ToolRunner;

  private constructor(options: ToolsetOptions, mcp: readonly McpServerTool[], builtins: ReadonlySet<BuiltinName>) {
    this.#options = options;
    this.#mcp = mcp;
    this.#builtins = builtins;
    this.#clients = new Set(options.request.tools?.flatMap((tool) => (tool.type === "function" ? [tool.name] : [])));
    this.#chosen = chosenMcpTools(options.request.tool_choice);
    if (builtins.has("browser") && !options.config.servers.browser) this.#browser = this.#newBrowser();
    this.#runner = new ToolRunner(options.config, { ...options, container: this.container }, this.#browser);
    for (const server of mcp) {
      const { server_label: label } = server;
      // What this turn has listed before a crash stays as it was, also where that failed.
      const own = (options.output as Item[]).find((item) => isListOf(item, label));
      const list = own ?? options.items.findLast((item) => isListOf(item, label) && !hasFailed(item));
      if (list?.type !== "mcp_list_tools") continue;
      const origin = options.replays.find((replay) => replay.item === list.id)?.origin;
      if (own || isUsable(list.tools, origin, server)) this.#take(server, list.tools);
    }
  }

  /**
   * The toolset of a request, or undefined where it names no tool of this server's. Throws the 400 of a tool that the
   * operator has not set up, of a server that may not be called, and of an approval that nobody asked for.
   */
  static of(options: ToolsetOptions): Toolset | undefined {
    const { request, config } = options;
    const builtins = new Set<BuiltinName>();
    const mcp: McpServerTool[] = [];
    const choice = request.tool_choice === "none" ? [] : chosenTools(request.tool_choice);
    const chosen = choice && new Set(choice.map(choiceKey));
    for (const [index, tool] of (request.tools ?? []).entries()) {
      const builtin = tool.type === "mcp" ? config.builtinLabels.get(tool.server_label) : builtinOf(tool.type);
      if (builtin) checkBuiltin(builtin, config, index);
      // Approvals of the turn before are run whatever the model may do now.
      if (tool.type === "mcp" && !builtin) mcp.push(checkServer(tool, options, index));
      else if (builtin && (!chosen || chosen.has(toolKey(tool)))) builtins.add(builtin);
    }
    const toolset = mcp.length + builtins.size > 0 ? new Toolset(options, mcp, builtins) : undefined;
    takeApprovals(options, toolset);
    return toolset;
  }

  /** Takes an approved call, unless its tool is not among those of the request. */
  approve(asked: Extract<Item, { type: "mcp_approval_request" }>, request: string): boolean {
    const { server_label: label, name } = asked;
    const server = this.#mcp.find((each) => each.server_label === label);
    if (!server || !mayBeCalled(server, name)) return false;
    this.approved.push({
      tool: { kind: "mcp", label, name, approval: false },
      name: mcpFunctionName(label, name),
      arguments: asked.arguments,
      request,
    });
    return true;
  }

  /** Whether something is to be done before the model can be asked. */
  get mustPrepare(): boolean {
    return this.unlisted.length > 0 || this.approved.length > 0;
  }

  /** Servers whose tools nobody has listed in this conversation. */
  get unlisted(): McpServerTool[] {
    if (this.#options.request.tool_choice === "none") return [];
    return this.#mcp.filter((server) => !this.#listed.has(server.server_label));
  }

  /** Whether the model may call anything in its next round, after so many. */
  mayCall(rounds: number): boolean {
    return rounds < this.#options.config.maxRounds && this.#runner.hasTime;
  }

  /** The container in which code runs, as `container_id`. */
  get container(): string {
    const tool = this.#options.request.tools?.find((each) => each.type === "code_interpreter");
    const named = tool?.type === "code_interpreter" && typeof tool.container === "string" ? tool.container : undefined;
    return named ?? this.#options.ownContainer;
  }

  get citations(): CitationLookup | undefined {
    const browser = this.#browser;
    return browser && ((cursor, lines) => browser.citation(cursor, lines));
  }

  /** What the model gets to see. To be asked again once tools have been listed. */
  get serverTools(): ServerTools {
    const functions = [...this.#functions]
      .filter(([name]) => this.offers(name))
      .map(([, { definition }]) => definition);
    const namespaces: Record<string, ToolNamespace> = {};
    const builtinFunctions: FunctionTool[] = [];
    for (const name of this.#builtins) {
      const canSearch = name !== "browser" || this.#canSearch();
      const { tools, ...namespace } = NAMESPACES[name];
      namespaces[name] = { ...namespace, tools: tools.filter((tool) => canSearch || tool.name !== "search") };
      for (const tool of FUNCTIONS[name]) {
        if ((!canSearch && tool.name === "browser_search") || this.#clients.has(tool.name)) continue;
        const parameters = (tool.parameters ?? null) as Record<string, unknown> | null;
        builtinFunctions.push({
          type: "function",
          name: tool.name,
          description: tool.description,
          parameters,
          strict: null,
        });
      }
    }
    return { functions, namespaces, builtinFunctions };
  }

  /** Whether this turn's choice of tools leaves one to the model. Built-in ones that it does not are not there at all. */
  offers(name: string): boolean {
    const tool = this.#functions.get(name)?.tool;
    if (!tool) return true;
    if (!this.#chosen) return this.#options.request.tool_choice !== "none";
    return this.#chosen.has(tool.label) || this.#chosen.has(`${tool.label}:${tool.name}`);
  }

  /** The tool that a model means, by a function's name or by a built-in tool's full one. */
  resolve(name: string): ServerTool | undefined {
    const mcp = this.#functions.get(name);
    if (mcp) return mcp.tool;
    if (this.#clients.has(name)) return undefined;
    switch (name.replace("_", ".")) {
      case "browser.search":
      case "browser.open":
      case "browser.find":
        return this.#builtins.has("browser")
          ? { kind: "browser", action: name.slice("browser.".length) as "search" | "open" | "find" }
          : undefined;
      case "python":
        return this.#builtins.has("python") ? { kind: "python" } : undefined;
      case "container.exec":
        return this.#builtins.has("container") ? { kind: "container" } : undefined;
      default:
        return undefined;
    }
  }

  /** Lists the tools of a server. Never rejects: what prevents it is in the item, and the turn goes on without them. */
  async list(server: McpServerTool, signal: AbortSignal): Promise<{ tools: McpTool[] } | { error: string }> {
    const listed = await this.#runner.list(server.server_label, signal);
    if ("error" in listed) return listed;
    const tools = listed.tools.filter((tool) => isAllowed(server.allowed_tools, tool));
    this.#take(server, tools);
    return { tools };
  }

  #take(server: McpServerTool, tools: readonly McpTool[]): void {
    const { server_label: label, require_approval: approval } = server;
    this.#listed.add(label);
    for (const tool of tools) {
      if (!isAllowed(server.allowed_tools, tool)) continue;
      const name = this.#freeName(mcpFunctionName(label, tool.name));
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

  #freeName(wanted: string): string {
    if (this.#isFree(wanted)) return wanted;
    const stem = wanted.slice(0, MAX_STEM_LENGTH);
    let count = this.#numbered.get(stem) ?? 2;
    while (!this.#isFree(`${stem}_${count}`)) count += 1;
    this.#numbered.set(stem, count + 1);
    return `${stem}_${count}`;
  }

  #isFree(name: string): boolean {
    return !this.#functions.has(name) && !this.#clients.has(name);
  }

  /** Runs a call. Rejects with the signal's reason when it is aborted, and with nothing else. */
  run(call: PendingCall, signal: AbortSignal): Promise<ToolOutcome> {
    return this.#runner.run(call, signal);
  }

  /** Ends the sessions with all tool servers. Never rejects. */
  close(): Promise<void> {
    return this.#runner.close();
  }

  #newBrowser(): Browser {
    const { config, replays, request } = this.#options;
    const remembered = replays.findLast((replay) => replay.exchange?.memory !== undefined)?.exchange?.memory;
    const web = request.tools?.find(isWebSearch);
    return newBrowser(remembered as BrowserState | undefined, web?.filters, config);
  }

  #canSearch(): boolean {
    const { config } = this.#options;
    return config.servers.browser !== undefined || hasSearch(config);
  }
}

/**
 * Has the toolset make the calls that the client has approved. Throws the 400 of an approval that nobody asked for, that
 * contradicts another one, or that no tool of the request meets.
 */
function takeApprovals({ items, input }: ToolsetOptions, toolset: Toolset | undefined): void {
  const approvals = items.filter((item) => item.type === "mcp_approval_response");
  if (approvals.length === 0) return;
  const answered = new Set(items.map((item) => (item.type === "mcp_call" ? item.approval_request_id : null)));
  const decided = new Map<string, boolean>();
  const requests = approvalRequests(items);
  const places = new Map<Item, number>();
  for (const [index, item] of input.entries()) if (!places.has(item)) places.set(item, index);
  for (const approval of approvals) {
    const asked = requests.get(approval.approval_request_id);
    // Of an earlier turn: its request, or its server, may be gone by now.
    const isNew = places.has(approval);
    const path = `input[${places.get(approval)}].approval_request_id`;
    if (isNew) {
      if ((decided.get(approval.approval_request_id) ?? approval.approve) !== approval.approve) {
        throw invalidRequest(
          path,
          `The approval request '${approval.approval_request_id}' is both approved and refused.`,
        );
      }
      decided.set(approval.approval_request_id, approval.approve);
    }
    if (!asked) {
      if (!isNew) continue;
      throw invalidRequest(path, `No approval request found with id '${approval.approval_request_id}'.`);
    }
    if (!approval.approve || answered.has(approval.approval_request_id)) continue;
    answered.add(approval.approval_request_id);
    if (isNew && toolset && toolset.approved.length >= MAX_APPROVED_CALLS) {
      throw invalidRequest(path, `Expected at most ${MAX_APPROVED_CALLS} approved calls.`, "array_above_max_length");
    }
    if (!toolset?.approve(asked, approval.approval_request_id) && isNew) {
      throw invalidRequest(
        path,
        `The tool '${asked.name}' of the MCP server '${asked.server_label}' is not among the 'tools' of this request.`,
      );
    }
  }
}

function chosenMcpTools(choice: CreateRequest["tool_choice"]): ReadonlySet<string> | undefined {
  const chosen = chosenTools(choice);
  if (!chosen) return undefined;
  const names = chosen.flatMap((each) => {
    if (each.type !== "mcp") return [];
    return "name" in each ? [`${each.server_label}:${each.name}`] : [each.server_label];
  });
  return new Set(names);
}

function builtinOf(type: string): BuiltinName | undefined {
  if (type.startsWith("web_search")) return "browser";
  if (type === "code_interpreter") return "python";
  return type === "container" ? "container" : undefined;
}

function checkBuiltin(builtin: BuiltinName, config: ToolConfig, index: number): void {
  if (builtin === "browser" || config.servers[builtin]) return;
  throw invalidRequest(
    `tools[${index}].type`,
    `This server has no tool server for '${builtin}' (TOOL_SERVERS).`,
    "unsupported_parameter",
  );
}

function checkServer(tool: McpServerTool, { config, access }: ToolsetOptions, index: number): McpServerTool {
  const url = tool.server_url;
  if (url === undefined) {
    throw invalidRequest(
      `tools[${index}].server_url`,
      `Missing required parameter: 'tools[${index}].server_url'.`,
      "missing_required_parameter",
    );
  }
  const called = (Object.hasOwn(access, tool.server_label) ? access[tool.server_label]?.server_url : undefined) ?? url;
  if (!URL.canParse(called) || !mayCall(new URL(called), config)) {
    throw invalidRequest(
      `tools[${index}].server_url`,
      "Expected an https URL of a public address, or of a server that the operator has listed (MCP_SERVERS).",
      "invalid_url",
    );
  }
  if (isToolServer(new URL(called), config)) {
    throw invalidRequest(
      `tools[${index}].server_url`,
      "This is the operator's tool server: ask for the built-in tool instead.",
      "invalid_url",
    );
  }
  return tool;
}

function mayCall(url: URL, { isListed }: ToolConfig): boolean {
  return isPublicUrl(url.href) || isListed(url);
}

function isListOf(item: Item, label: string): boolean {
  return item.type === "mcp_list_tools" && item.server_label === label;
}

function hasFailed(item: Item): boolean {
  return "error" in item && item.error != null;
}

function isWebSearch(tool: Tool): tool is WebSearchTool {
  return tool.type.startsWith("web_search");
}
