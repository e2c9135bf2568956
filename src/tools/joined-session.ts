import { CitationMarks, type Cite } from "@responses-edge/hosted-tools/browser/citation-marks";
import { ToolFault, toMcpError, toToolFault, truncate } from "@responses-edge/hosted-tools/mcp-client";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { hostedOf } from "@responses-edge/responses-api/hosted-tools";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { mayBeCalled } from "@responses-edge/responses-api/tool-fields";
import { ClientTools, hostedKey } from "@responses-edge/responses-api/tool-names";
import {
  type ChosenTool,
  chosenTools,
  type FunctionTool,
  mustCall,
  type Tool,
} from "@responses-edge/responses-api/tools";
import { formatPath } from "@responses-edge/responses-api/validation-errors";
import type { PluginTools, ToolNamespace } from "@responses-edge/turn/contract/engine";
import type {
  ApprovedCall,
  CalledTool,
  CitationFilter,
  PendingCall,
  ToolOutcome,
  ToolSession,
  UnlistedServer,
} from "@responses-edge/turn/contract/tool-session";
import type { ToolConfig } from "../config/index.ts";
import { MULTI_AGENT } from "./multi-agent/plugin.ts";
import {
  outOfTime,
  type PluginSession,
  type RunnablePlugin,
  type SessionOptions,
  type SessionRequest,
} from "./plugin.ts";
import { PLUGIN_LIST, PLUGINS_BY_KIND } from "./plugins.ts";

/**
 * The sessions of a turn's plugins as one: which tools there are, how the model sees them, and which tool it means by a
 * name. A tool's failure is an outcome that the model sees; only an abort rejects.
 */
export class JoinedSession implements ToolSession {
  readonly citations: (() => CitationFilter) | undefined;
  readonly citationsIn: ToolSession["citationsIn"];
  /** The unlisted servers of all plugins. */
  readonly unlisted: UnlistedServer[] = [];
  readonly approved: ApprovedCall[] = [];
  readonly idle = new Map<string, string>();
  readonly #config: ToolConfig;
  /** When all tools of the turn must have ended, Unix milliseconds. */
  readonly deadline: number;
  readonly maxRounds: number;
  readonly #sessions = new Map<string, PluginSession>();
  /** Names of the client's tools: each comes before a tool of ours that has the same name. */
  readonly #clientFunctions: SessionOptions["clientFunctions"];
  /** The tools of the request, by the `kind`s of the plugins that have only one. */
  readonly #asked = new Map<string, Tool>();
  /** `kind`s of those tools that the request's choice leaves out. */
  readonly #unchosen = new Set<string>();
  /** Bytes left for the outputs of this turn. */
  #outputLeft: number;

  /** `plugins` are those that the request asks for, each with whether its choice includes one of their tools. */
  private constructor(options: SessionRequest, plugins: ReadonlyMap<RunnablePlugin, boolean>) {
    const { config, request } = options;
    this.#config = config;
    this.maxRounds = config.maxRounds;
    this.deadline = Date.now() + config.turnTimeMs;
    this.#outputLeft = config.outputBytes * 10;
    this.#clientFunctions = ClientTools.of(request.tools).byName;
    for (const tool of request.tools ?? []) {
      const kind = hostedOf(tool.type)?.kind;
      if (kind !== undefined && kind !== "mcp") this.#asked.set(kind, tool);
    }
    const cites: Cite[] = [];
    const citing: NonNullable<PluginSession["citationsIn"]>[] = [];
    for (const [plugin, isChosen] of plugins) {
      const session = plugin.session({ ...options, clientFunctions: this.#clientFunctions, deadline: this.deadline });
      this.#sessions.set(plugin.kind, session);
      if (!isChosen) this.#unchosen.add(plugin.kind);
      if (session.cite) cites.push(session.cite);
      if (session.citationsIn) citing.push(session.citationsIn);
    }
    if (cites.length > 0) this.citations = () => new CitationMarks(firstOf(cites));
    if (citing.length > 0) this.citationsIn = (text) => citing.flatMap((citationsIn) => citationsIn(text));
  }

  /**
   * The session of a request; undefined if it names no hosted tool. Throws the 400 of a tool that cannot be served
   * (`RunnablePlugin.check`), and of input that refers to missing calls (`RunnablePlugin.takeInput`).
   */
  static of(options: SessionRequest): JoinedSession | undefined {
    const { request, config } = options;
    const plugins = new Map<RunnablePlugin, boolean>();
    const { tool_choice: choice } = request;
    const chosenOnes = choice == null ? undefined : choice === "none" ? [] : chosenTools(choice);
    const chosen = chosenOnes && new Set(chosenOnes.map(hostedKey));
    const disabled = new Map<string, string>();
    let hasClientTools = false;
    for (const [index, tool] of (request.tools ?? []).entries()) {
      const builtin = tool.type === "mcp" ? config.builtinLabels.get(tool.server_label) : undefined;
      const kind = builtin ?? hostedOf(tool.type)?.kind ?? "tool_search";
      // None for a tool that the client runs.
      const key = hostedKey(tool);
      const plugin = key === undefined ? undefined : PLUGINS_BY_KIND.get(kind);
      hasClientTools ||= !plugin;
      if (key === undefined || !plugin) continue;
      if (!config.offeredKinds.has(plugin.kind)) {
        disabled.set(key, `The tool '${tool.type}' is disabled on this server.`);
        continue;
      }
      plugin.check?.(tool, index, options);
      plugins.set(plugin, plugins.get(plugin) || !chosen || chosen.has(key));
    }
    if (request.multi_agent?.enabled) {
      checkAgents(options);
      plugins.set(MULTI_AGENT, choice !== "none");
    }
    if (mustCall(choice)) refuseDisabled(chosenOnes ?? request.tools ?? [], disabled);
    if (hasClientTools) refuseSameNames(request, plugins.keys());
    const joined = plugins.size > 0 ? new JoinedSession(options, plugins) : undefined;
    const sessions = joined ? joined.#sessions : undefined;
    if (!options.hasOnlyText) {
      for (const plugin of PLUGIN_LIST) plugin.takeInput?.(options, sessions?.get(plugin.kind));
    }
    for (const { unlisted = [], approved = [], idle } of sessions?.values() ?? []) {
      joined?.unlisted.push(...unlisted);
      joined?.approved.push(...approved);
      if (idle) joined?.idle.set(idle.key, idle.why);
    }
    for (const [key, why] of disabled) joined?.idle.set(key, why);
    return joined;
  }

  get pluginTools(): PluginTools {
    const functions: FunctionTool[] = [];
    const namespaces: Record<string, ToolNamespace> = {};
    const builtinFunctions: FunctionTool[] = [];
    const forPrograms: FunctionTool[] = [];
    const withheld = new Set<string>();
    for (const [kind, { offered }] of this.#sessions) {
      const { namespace } = offered;
      const isUnchosen = this.#unchosen.has(kind);
      const asked = this.#asked.get(kind);
      const isDirect = !asked || mayBeCalled(asked, "direct");
      if (namespace && isDirect) {
        namespaces[namespace.name] = namespace;
        if (isUnchosen) withheld.add(namespace.name);
      }
      for (const tool of offered.functions) {
        const { name } = tool;
        const parameters = (tool.parameters ?? null) as FunctionTool["parameters"];
        const { description } = tool;
        const definition: FunctionTool = { type: "function", name, description, parameters, strict: null };
        if (this.callable(name)) forPrograms.push(definition);
        if (!isDirect || !this.#isCallable(name, "direct")) continue;
        if (!namespace) functions.push(definition);
        else if (!this.#clientFunctions.has(name)) builtinFunctions.push(definition);
        if (isUnchosen || this.resolve(name)?.isOffered === false) withheld.add(name);
      }
    }
    return { functions, namespaces, builtinFunctions, forPrograms, withheld };
  }

  callable(name: string): CalledTool | undefined {
    return this.#isCallable(name, "programmatic") ? this.#sessionOf(name)?.tool : undefined;
  }

  #isCallable(name: string, caller: "direct" | "programmatic"): boolean {
    const found = this.#sessionOf(name);
    const asked = found && (found.session.asked?.(found.tool) ?? this.#asked.get(found.tool.kind));
    return asked === undefined ? caller === "direct" : mayBeCalled(asked, caller);
  }

  #sessionOf(name: string): { tool: CalledTool; session: PluginSession } | undefined {
    for (const session of this.#sessions.values()) {
      const tool = session.tools.get(name);
      if (tool) return { tool, session };
    }
    return undefined;
  }

  resolve(name: string): { tool: CalledTool; isOffered: boolean } | undefined {
    if (this.#clientFunctions.has(name)) return undefined;
    const found = this.#sessionOf(name);
    if (!found) return undefined;
    const { tool, session } = found;
    const isChosen = !this.#unchosen.has(tool.kind) && session.offers?.(tool) !== false;
    return { tool, isOffered: isChosen && this.#isCallable(name, "direct") };
  }

  async open(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.#sessions.values()].map((session) => session.open?.(signal)));
  }

  container(): string {
    for (const session of this.#sessions.values()) if (session.container) return session.container();
    return "";
  }

  async run(call: PendingCall, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome> {
    let outcome: ToolOutcome;
    try {
      if (Date.now() >= this.deadline) throw outOfTime();
      const session = this.#sessions.get(call.tool.kind);
      if (!session) throw new ToolFault("unreachable", "The tool could not be run.");
      outcome = await session.run(call, signal, traceparent);
    } catch (error) {
      signal.throwIfAborted();
      const fault = toToolFault(error);
      outcome = { output: `Error: ${fault.message}`, failed: true, error: toMcpError(fault) };
    }
    // Cut to the limit of one call, and to that of all calls of the turn.
    const bytes = Math.min(this.#config.outputBytes, this.#outputLeft);
    const cut =
      bytes > 0 ? truncate(outcome.output, bytes) : "[The output of tools in this turn has reached its limit.]";
    this.#outputLeft -= new TextEncoder().encode(cut).length;
    return { ...outcome, output: cut };
  }

  inject(items: readonly Item[]): void {
    for (const session of this.#sessions.values()) session.inject?.(items);
  }

  async close(): Promise<void> {
    const closing: (Promise<void> | undefined)[] = [];
    for (const tool of this.#sessions.values()) closing.push(tool.close?.());
    await Promise.all(closing);
  }
}

/** Throws the 400 of a request whose agents cannot be served. */
function checkAgents({ request, config }: SessionRequest): void {
  if (!config.offeredKinds.has(MULTI_AGENT.kind)) {
    const message = "'multi_agent' is disabled on this server, or for this API key.";
    throw invalidRequest("multi_agent.enabled", message, "unsupported_parameter");
  }
  if (request.max_tool_calls != null) {
    throw invalidRequest(
      "max_tool_calls",
      "'max_tool_calls' is not supported with 'multi_agent'.",
      "unsupported_parameter",
    );
  }
}

/** Tries each tool: the first that knows a mark makes its citation. */
function firstOf(cites: readonly Cite[]): Cite {
  return (source, part) => {
    for (const cite of cites) {
      const cited = cite(source, part);
      if (cited) return cited;
    }
    return undefined;
  };
}

/**
 * Throws the 400 of a custom tool that has the name of a hosted one, because calls of the two could not be told apart.
 * A function with such a name takes precedence (docs/tools.md).
 */
function refuseSameNames({ tools }: SessionRequest["request"], plugins: Iterable<RunnablePlugin>): void {
  const offered = [...plugins];
  for (const { tool, flatName, path } of ClientTools.of(tools).listed) {
    if (tool.type !== "custom" || !offered.some((plugin) => plugin.tools?.has(flatName))) continue;
    const message = `The custom tool '${flatName}' has the name of a tool that this server runs.`;
    throw invalidRequest(formatPath(["tools", ...path]), message);
  }
}

/** Throws the 400 of a choice that forces a call of tools which are all disabled. */
function refuseDisabled(forced: readonly (Tool | ChosenTool)[], disabled: ReadonlyMap<string, string>): void {
  const reasons = forced.map((tool) => disabled.get(hostedKey(tool) ?? ""));
  const [why] = reasons;
  if (why === undefined || reasons.includes(undefined)) return;
  throw invalidRequest("tool_choice", why, "unsupported_parameter");
}
