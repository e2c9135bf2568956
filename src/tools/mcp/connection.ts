import { type GuardOptions, guardedFetch, unlessAborted } from "@responses-edge/guarded-fetch";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { ListedTool, ToolOutcome } from "@responses-edge/turn/tool-session";
import type { ToolConfig } from "../../config/index.ts";
import type { ToolTime } from "../plugin.ts";
import { ToolFault } from "../tool-fault.ts";
import { type McpServer, McpSession, type McpToolResult } from "./client.ts";
import { toMcpError } from "./faults.ts";

/** Tools that one server may list. */
const MAX_TOOLS = 1_000;

/** The most bytes of one answer of an MCP server. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

const CONNECT_TIMEOUT_MS = 15_000;

/** Tells a model, in vLLM's words, of arguments that are no JSON object. */
const UNREADABLE_ARGUMENTS =
  "Error parsing tool arguments as JSON. Please ensure the tool call arguments are valid JSON and try again.";

/** How long a server may take over the cleaning up after a session. */
const CLEAN_UP_TIMEOUT_MS = 2_000;

/** Which server is to be called, and which addresses that may lead to. */
export interface McpTarget {
  server: McpServer;
  guard: Partial<GuardOptions>;
}

/** The connection of one turn to an MCP server. It is made with the first call, and again after one that failed. */
export class McpConnection {
  readonly #config: ToolConfig;
  readonly #time: ToolTime;
  readonly #target: () => McpTarget;
  readonly #end = new AbortController();
  #session: Promise<McpSession> | undefined;

  /** `target` may throw the ToolFault of a server that cannot be called. */
  constructor({ config, time }: { config: ToolConfig; time: ToolTime }, target: () => McpTarget) {
    this.#config = config;
    this.#time = time;
    this.#target = target;
  }

  /** The server's tools. Throws ToolFault, and the signal's reason when it is aborted. */
  async listTools(signal: AbortSignal, traceparent?: string): Promise<ListedTool[]> {
    const session = await unlessAborted(this.#connected(), signal);
    return session.listTools({ signal, traceparent });
  }

  /**
   * Calls a tool with arguments as a model has written them. That the tool failed is an outcome. Throws ToolFault, also for what is no
   * JSON object, and the signal's reason when it is aborted.
   */
  async call(name: string, json: string, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome> {
    const args = parseArguments(json);
    if (!args) throw new ToolFault("tool", UNREADABLE_ARGUMENTS);
    return outcomeOf(await this.ask(name, args, signal, traceparent));
  }

  /** Calls a tool, and gives all that it answers. Throws ToolFault, and the signal's reason when it is aborted. */
  async ask(
    name: string,
    args: Record<string, unknown>,
    signal: AbortSignal,
    traceparent?: string,
  ): Promise<McpToolResult> {
    const session = await unlessAborted(this.#connected(), signal);
    const timeoutMs = this.#time.atMost(this.#config.callTimeoutMs);
    return session.callTool(name, args, { signal, timeoutMs, traceparent });
  }

  /** Ends the session, if there is one, after a call of the tool that cleans up. Never rejects. */
  async close(cleanUpTool?: string): Promise<void> {
    // One that still connects, when all that is settled by now has had its say, is given up.
    const next = Promise.withResolvers<undefined>();
    setTimeout(next.resolve, 0, undefined);
    const session = this.#session && (await Promise.race([this.#session, next.promise]).catch(() => undefined));
    if (session) {
      if (cleanUpTool !== undefined) {
        const options = { timeoutMs: CLEAN_UP_TIMEOUT_MS, signal: this.#end.signal };
        await session.callTool(cleanUpTool, {}, options).catch(() => {});
      }
      await session.close();
    }
    this.#end.abort();
  }

  #connected(): Promise<McpSession> {
    if (this.#session) return this.#session;
    const session = this.#connect();
    this.#session = session;
    session.catch(() => {
      this.#session = undefined;
    });
    return session;
  }

  async #connect(): Promise<McpSession> {
    const { server, guard } = this.#target();
    const { callTimeoutMs, outputBytes } = this.#config;
    const connectMs = this.#time.atMost(CONNECT_TIMEOUT_MS);
    const timeoutMs = callTimeoutMs + CONNECT_TIMEOUT_MS;
    return McpSession.connect(server, {
      fetch: (url, init) => guardedFetch(url, init, { ...guard, timeoutMs, maxBytes: MAX_ANSWER_BYTES }),
      timeouts: { connectMs, listMs: connectMs, callMs: callTimeoutMs },
      maxBytes: MAX_ANSWER_BYTES,
      maxOutputBytes: outputBytes,
      maxTools: MAX_TOOLS,
      signal: this.#end.signal,
    });
  }
}

/** The answer of a tool, as the outcome of its call. */
export function outcomeOf({ output, isError }: McpToolResult): ToolOutcome {
  if (!isError) return { output, failed: false };
  return { output, failed: true, error: toMcpError(new ToolFault("tool", output)) };
}
