import type { BuiltinName, ToolConfig } from "../config.ts";
import type { McpAccess } from "../contract/mcp-access.ts";
import { unwrapScript } from "../contract/script.ts";
import { fullToolName, type PendingCall, type ToolOutcome } from "../contract/server-tool.ts";
import { type JsonObject, parseArguments } from "../protocol/json.ts";
import type { Browser } from "./browser/browser.ts";
import { type BrowserState, bounded } from "./browser/state.ts";
import { guardOf } from "./guard.ts";
import { type GuardOptions, guardedFetch, unlessAborted } from "./guarded-fetch.ts";
import { type McpServer, McpSession, type McpTool, toMcpError } from "./mcp/client.ts";
import { truncate } from "./mcp/output.ts";
import { ToolFault } from "./tool-fault.ts";

/** Where a turn's tools are. */
export interface ToolPlaces {
  /** By server label. One that is missing was not kept over a restart. */
  access: Readonly<Record<string, McpAccess>>;
  /** Names the tenant and the container to the operator's tool servers, without telling who they are. */
  sessionOf: (container: string) => string;
  /** `container_id` of the turn's code, and of a turn that names none. */
  container: string;
  ownContainer: string;
}

/** Tools that one server may list. */
const MAX_TOOLS = 1_000;

/** Of one answer of an MCP server. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

const CONNECT_TIMEOUT_MS = 15_000;

/** Of what the browser remembers from turn to turn. */
const MAX_MEMORY_BYTES = 32_000;

/** The MCP tool behind a built-in one on an operator's server (gpt-oss's own tool servers). */
const REMOTE_NAMES: Record<string, string> = {
  "browser.search": "search",
  "browser.open": "open",
  "browser.find": "find",
  python: "python",
  "container.exec": "exec",
};

/**
 * Runs the calls of one turn: on MCP servers, on the operator's tool servers, in the built-in browser. A tool's failure is
 * an outcome that the model sees; only an abort rejects.
 */
export class ToolRunner {
  readonly #config: ToolConfig;
  readonly #places: ToolPlaces;
  readonly #browser: Browser | undefined;
  readonly #sessions = new Map<string, Promise<McpSession>>();
  readonly #end = new AbortController();
  /** The last call of each tool that has a state. */
  readonly #last = new Map<string, Promise<unknown>>();
  #outputLeft: number;
  readonly #deadline: number;

  /** `browser` is the built-in one, unless the operator has a server for it. */
  constructor(config: ToolConfig, places: ToolPlaces, browser: Browser | undefined) {
    this.#config = config;
    this.#places = places;
    this.#browser = browser;
    this.#outputLeft = config.outputBytes * 10;
    this.#deadline = Date.now() + config.turnTimeMs;
  }

  /** Whether calls may still be made. */
  get hasTime(): boolean {
    return Date.now() < this.#deadline;
  }

  /** All tools of a server, by its label, or why they cannot be listed. Rejects only with the signal's reason. */
  async list(label: string, signal: AbortSignal): Promise<{ tools: McpTool[] } | { error: string }> {
    try {
      const session = await unlessAborted(this.#mcpSession(label), signal);
      return { tools: await session.listTools({ signal }) };
    } catch (error) {
      signal.throwIfAborted();
      return { error: toFault(error).message };
    }
  }

  /** Runs a call. Rejects with the signal's reason when it is aborted, and with nothing else. */
  async run(call: PendingCall, signal: AbortSignal): Promise<ToolOutcome> {
    try {
      this.#checkTime();
      const outcome = await this.#run(call, signal);
      return { ...outcome, output: this.#withinBounds(outcome.output) };
    } catch (error) {
      signal.throwIfAborted();
      const fault = toFault(error);
      return {
        output: this.#withinBounds(`Error: ${fault.message}`),
        failed: true,
        ...((call.tool.kind === "mcp" || call.tool.kind === "container") && { error: toMcpError(fault) }),
      };
    }
  }

  async #run(call: PendingCall, signal: AbortSignal): Promise<ToolOutcome> {
    const { tool } = call;
    switch (tool.kind) {
      case "mcp": {
        const session = await unlessAborted(this.#mcpSession(tool.label), signal);
        return this.#callMcp(session, tool.name, toArguments(call.arguments), signal);
      }
      case "browser": {
        const browser = this.#browser;
        if (!browser) return this.#callBuiltin("browser", fullToolName(tool), call.arguments, signal);
        return this.#inOrder(tool.kind, () => this.#browse(browser, tool.action, call.arguments, signal));
      }
      case "python": {
        const code = unwrapScript(call.arguments);
        return this.#inOrder(tool.kind, () => this.#callBuiltin("python", "python", JSON.stringify({ code }), signal));
      }
      case "container":
        return this.#inOrder(tool.kind, () => this.#callBuiltin("container", "container.exec", call.arguments, signal));
    }
  }

  /** Runs calls of a tool with a state one after another, in the order in which the model made them. */
  #inOrder<T>(kind: string, work: () => Promise<T>): Promise<T> {
    const done = (this.#last.get(kind) ?? Promise.resolve()).then(() => {
      this.#checkTime();
      return work();
    });
    this.#last.set(
      kind,
      done.catch(() => {}),
    );
    return done;
  }

  async #callBuiltin(builtin: BuiltinName, name: string, json: string, signal: AbortSignal): Promise<ToolOutcome> {
    const session = await unlessAborted(this.#builtinSession(builtin), signal);
    return this.#callMcp(session, REMOTE_NAMES[name] ?? name, toArguments(json), signal);
  }

  async #callMcp(
    session: McpSession,
    name: string,
    given: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<ToolOutcome> {
    const timeoutMs = this.#timeLeft(this.#config.callTimeoutMs);
    const { output, isError } = await session.callTool(name, given, { signal, timeoutMs });
    if (!isError) return { output, failed: false };
    return { output, failed: true, error: toMcpError(new ToolFault("tool", output)) };
  }

  async #browse(browser: Browser, name: string, json: string, signal: AbortSignal): Promise<ToolOutcome> {
    const timeout = AbortSignal.timeout(this.#timeLeft(this.#config.callTimeoutMs));
    try {
      const { text, isError, action, sources } = await browser.call(name, json, AbortSignal.any([signal, timeout]));
      const memory = withoutLongTexts(bounded(browser.state, MAX_MEMORY_BYTES));
      return { output: text, failed: isError, action, ...(sources && { sources }), memory };
    } catch (error) {
      if (!signal.aborted && timeout.aborted) throw new ToolFault("timeout", "The browser did not answer in time.");
      throw error;
    }
  }

  #checkTime(): void {
    if (!this.hasTime) throw new ToolFault("timeout", "The tools of this turn have used up their time.");
  }

  /** At most `ms`, and not beyond the turn's time. */
  #timeLeft(ms: number): number {
    return Math.max(1, Math.min(ms, this.#deadline - Date.now()));
  }

  /** What a turn's tools say altogether is bounded, too. */
  #withinBounds(output: string): string {
    const bytes = Math.min(this.#config.outputBytes, this.#outputLeft);
    const text = bytes <= 0 ? "[The output of tools in this turn has reached its limit.]" : truncate(output, bytes);
    this.#outputLeft -= new TextEncoder().encode(text).length;
    return text;
  }

  #mcpSession(label: string): Promise<McpSession> {
    const { access: all } = this.#places;
    const access = Object.hasOwn(all, label) ? all[label] : undefined;
    return this.#session(label, async () => {
      if (!access) {
        throw new ToolFault(
          "refused_address",
          `The credentials for the MCP server '${label}' are not kept over a restart.`,
        );
      }
      const { server_url: url, authorization, headers } = access;
      return this.#connect(
        { label, url, ...(authorization && { authorization }), ...(headers && { headers }) },
        guardOf(this.#config),
      );
    });
  }

  #builtinSession(builtin: BuiltinName): Promise<McpSession> {
    const url = this.#config.servers[builtin];
    return this.#session(`builtin:${builtin}`, async () => {
      if (!url) throw new ToolFault("unreachable", `There is no tool server for '${builtin}'.`);
      const { container, ownContainer, sessionOf } = this.#places;
      const headers = { "x-session-id": sessionOf(builtin === "python" ? container : ownContainer) };
      const { origin } = new URL(url);
      const { apiKey: authorization } = this.#config;
      return this.#connect(
        { label: builtin, url, headers, ...(authorization !== undefined && { authorization }) },
        { allow: (target) => target.origin === origin },
      );
    });
  }

  #session(key: string, connect: () => Promise<McpSession>): Promise<McpSession> {
    const known = this.#sessions.get(key);
    if (known) return known;
    const session = connect();
    this.#sessions.set(key, session);
    // A connection that failed is tried again by the next call.
    session.catch(() => this.#sessions.delete(key));
    return session;
  }

  #connect(server: McpServer, guard: Partial<GuardOptions>): Promise<McpSession> {
    const { callTimeoutMs, outputBytes } = this.#config;
    const connectMs = this.#timeLeft(CONNECT_TIMEOUT_MS);
    return McpSession.connect(server, {
      fetch: (url, init) =>
        guardedFetch(url, init, {
          ...guard,
          timeoutMs: callTimeoutMs + CONNECT_TIMEOUT_MS,
          maxBytes: MAX_ANSWER_BYTES,
        }),
      timeouts: { connectMs, listMs: connectMs, callMs: callTimeoutMs },
      maxBytes: MAX_ANSWER_BYTES,
      maxOutputBytes: outputBytes,
      maxTools: MAX_TOOLS,
      signal: this.#end.signal,
    });
  }

  /** Ends the sessions with all tool servers. Never rejects. */
  async close(): Promise<void> {
    // One that still connects is given up.
    const connected = [...this.#sessions].map(
      async ([key, session]) => [key, await Promise.race([session, gaveUp()])] as const,
    );
    const sessions = await Promise.allSettled(connected);
    await Promise.all(
      sessions.map(async (settled) => {
        if (settled.status === "rejected") return;
        const [key, session] = settled.value;
        // A container that the client has named lives on, for the next turn.
        const isOwn = key !== "builtin:python" || this.#places.container === this.#places.ownContainer;
        if (key.startsWith("builtin:") && isOwn) {
          await session.callTool("cleanup_session", {}, { timeoutMs: 2_000, signal: this.#end.signal }).catch(() => {});
        }
        await session.close();
      }),
    );
    this.#end.abort();
  }
}

/** The arguments of a call. Throws ToolFault, in vLLM's words, for what is no JSON object. */
function toArguments(json: string): JsonObject {
  const given = parseArguments(json);
  if (given) return given;
  throw new ToolFault(
    "tool",
    "Error parsing tool arguments as JSON. Please ensure the tool call arguments are valid JSON and try again.",
  );
}

function toFault(error: unknown): ToolFault {
  if (error instanceof ToolFault) return error;
  return new ToolFault("unreachable", "The tool could not be run.");
}

/** A page is fetched again when its text is asked for and not there. */
function withoutLongTexts(state: BrowserState): BrowserState {
  const pages = state.pages.map((page) => {
    if ((page.text?.length ?? 0) <= MAX_MEMORY_BYTES) return page;
    const { text: _, ...rest } = page;
    return rest as typeof page;
  });
  return { ...state, pages };
}

/** Rejects when all that is settled by now has had its say. */
async function gaveUp(): Promise<never> {
  await new Promise((resolve) => setTimeout(resolve));
  throw new ToolFault("unreachable", "The connection is given up.");
}
