import type { Client } from "@modelcontextprotocol/client";
import { FetchFault, guardedFetch, unlessAborted } from "@responses-edge/outgoing-fetch/guarded";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { McpToolCallError } from "openai/resources/responses/responses";
import { imagesIn, type ListedTool, outputText, readTools } from "./answers.ts";
import { clientToken, forgetToken } from "./client-tokens.ts";
import type { Attempt, McpTarget, Operation, OperationOptions } from "./operation.ts";
import type { Way } from "./sdk.ts";
import { CONNECTION_CLOSED, ToolFault, toMcpError, toToolFault } from "./tool-fault.ts";

/**
 * MCP servers of clients or models, with the official client package. The package speaks the protocol; this module
 * bounds time, bytes and addresses, whatever the server does.
 */

export interface McpConnectionOptions {
  /** The server's name in faults. */
  label: string;
  target: McpTarget;
  /** The timeouts of connecting and of listing the tools, by default 15 s each, and of calling one. */
  timeouts: { connectMs?: number; listMs?: number; callMs: number };
  /** The deadline of all of it, Unix milliseconds. */
  deadline?: number;
  /** The maximum bytes of any one answer of the server, and of its tools together; by default 8 MiB. */
  maxBytes?: number;
  /** The maximum bytes of a tool call's text. */
  maxOutputBytes: number;
  /** The maximum of tools that the server may list; by default 1,000. */
  maxTools?: number;
}

const DEFAULT_TIMEOUTS = { connectMs: 15_000, listMs: 15_000 };
const DEFAULT_BOUNDS = { maxBytes: 8 * 1024 * 1024, maxTools: 1_000 };

/** The outcome of a call, with the tool's other output. */
export interface McpToolResult {
  output: string;
  /** Its images, as data URLs; `output` has a placeholder for each. */
  images?: string[];
  /** The tool reports a failure; `output` has the reason. */
  failed: boolean;
  error?: McpToolCallError;
  structured?: unknown;
}

/** The timeout of requests without a caller: cancellations, answers to the server's pings, resumed streams. */
const MAX_UNASKED_REQUESTS = 100;

/** The server's time for the end of a session, and for the cleanup after it. */
const CLOSE_TIMEOUT_MS = 2_000;

/** A marker that tells the connection's own fetch the operation of a request; never sent. */
const OPERATION_HEADER = "x-mcp-operation";

/** The message for a model about arguments that are no JSON object, in vLLM's words. */
const UNREADABLE_ARGUMENTS =
  "Error parsing tool arguments as JSON. Please ensure the tool call arguments are valid JSON and try again.";

/**
 * A connection to one MCP server. The first use opens it, and a use after a failed attempt opens it again. Calls may
 * run in parallel. Close it at the end.
 */
export class McpConnection {
  readonly #options: McpConnectionOptions & typeof DEFAULT_BOUNDS & { timeouts: typeof DEFAULT_TIMEOUTS };
  readonly #name: string;
  readonly #operations = new Map<string, Operation>();
  /** Definitions of the last list: the 2026 protocol repeats some arguments as headers, which the definition names. */
  #tools: ReadonlyMap<string, ListedTool> = new Map();
  #connected: Promise<Client> | undefined;
  /** From the last attempt. */
  #attempt: Attempt | undefined;
  #connecting: Operation | undefined;
  /** Aborted when nothing more can arrive. */
  #end = new AbortController();
  #nextOperation = 0;
  /** The deadline is for what is asked before. */
  #isClosing = false;
  #isClosed = false;

  constructor(options: McpConnectionOptions) {
    this.#options = { ...DEFAULT_BOUNDS, ...options, timeouts: { ...DEFAULT_TIMEOUTS, ...options.timeouts } };
    this.#name = `MCP server '${options.label}'`;
  }

  /**
   * Connects, where there is no connection yet. Rejects with the ToolFault of a server that cannot be connected to, and with the signal's
   * reason once that is aborted.
   */
  connect(signal = this.#end.signal): Promise<Client> {
    if (this.#isClosed) return Promise.reject(this.#closed());
    this.#connected ??= this.#attemptToConnect();
    return unlessAborted(this.#connected, signal);
  }

  /**
   * All tools of the server, in its order. A tool whose name the specification does not allow is left out: no model
   * could call it. Throws ToolFault: `too_large` for more tools than `maxTools` or larger ones than a prompt can hold; and the signal's
   * reason once that is aborted.
   */
  async listTools(options: OperationOptions = {}): Promise<ListedTool[]> {
    const bounds = { ...this.#options, server: this.#name };
    const { listMs } = this.#options.timeouts;
    this.#tools = await this.#asked(listMs, options, (client, operation) => readTools(client, bounds, operation));
    return [...this.#tools.values()];
  }

  /**
   * Calls a tool, also with arguments as a model has written them. That the tool failed is a result, not an error. `timeoutMs` is
   * `timeouts.callMs` unless given. Throws ToolFault, also for what is no JSON object, and the signal's reason once that is aborted.
   */
  async callTool(
    name: string,
    given: string | Record<string, unknown>,
    { timeoutMs = this.#options.timeouts.callMs, ...options }: OperationOptions & { timeoutMs?: number } = {},
  ): Promise<McpToolResult> {
    const args = typeof given === "string" ? parseArguments(given) : given;
    if (!args) throw new ToolFault("tool", UNREADABLE_ARGUMENTS);
    const tool = this.#tools.get(name);
    // Without its output schema: that is the server's, and its patterns would be run here.
    const definition = tool && { toolDefinition: { name, inputSchema: tool.input_schema as { type: "object" } } };
    const result = await this.#asked(timeoutMs, options, (client, { meta, request }) =>
      client.callTool({ name, arguments: args, ...meta }, { ...request, ...definition }),
    );
    const output = outputText(result, this.#options.maxOutputBytes);
    const images = imagesIn(result);
    return {
      output,
      ...(images.length > 0 && { images }),
      failed: result.isError === true,
      ...(result.isError === true && { error: toMcpError(new ToolFault("tool", output)) }),
      ...(result.structuredContent !== undefined && { structured: result.structuredContent }),
    };
  }

  /** Ends the session here and, if there is one, at the server, after a call of the tool that cleans up. Never rejects. */
  async close(cleanUpTool?: string): Promise<void> {
    // A connection that is still being made after the pending calls have ended is abandoned.
    this.#isClosing = true;
    const next = Promise.withResolvers<undefined>();
    setTimeout(next.resolve, 0, undefined);
    const client = await Promise.race([this.#connected, next.promise]).catch(() => undefined);
    if (client && cleanUpTool !== undefined) {
      await this.callTool(cleanUpTool, {}, { timeoutMs: CLOSE_TIMEOUT_MS }).catch(() => {});
    }
    for (const { abort } of this.#operations.values()) abort.abort(this.#closed());
    const { transport } = this.#attempt?.made ?? {};
    if (client && transport?.terminateSession && !this.#end.signal.aborted) {
      await this.#ended(this.#begin(CLOSE_TIMEOUT_MS), transport.terminateSession()).catch(() => {});
    }
    this.#isClosed = true;
    this.#end.abort();
    await this.#hangUp();
  }

  /** Asks the server, and once more in a new session if it answers 404: it has forgotten the present one, and done nothing. */
  async #asked<T>(
    mostMs: number,
    options: OperationOptions,
    ask: (client: Client, operation: Operation) => Promise<T>,
  ): Promise<T> {
    for (let isAgain = false; ; isAgain = true) {
      const client = await this.connect(options.signal);
      const [connected, made] = [this.#connected, this.#attempt?.made];
      const operation = this.#begin(mostMs, options);
      try {
        return await this.#ended(operation, ask(client, operation));
      } catch (error) {
        const isForgotten = operation.status === 404 && made?.transport.sessionId !== undefined;
        if (isAgain || !isForgotten || this.#isClosing) throw error;
        if (this.#connected === connected) this.#connected = undefined;
      }
    }
  }

  #closed(): ToolFault {
    return new ToolFault("unreachable", `The session with ${this.#name} was closed.`);
  }

  /** Makes the connection, within the time for it. An attempt that has failed may be followed by another. */
  async #attemptToConnect(): Promise<Client> {
    try {
      const sdk = await import("./sdk.ts");
      this.#end.signal.throwIfAborted();
      const { target: given } = this.#options;
      if (!URL.canParse(given.url))
        throw new ToolFault("refused_address", `The 'server_url' of ${this.#name} is not a valid URL.`);
      const { client: oauth } = given;
      const target = oauth
        ? { ...given, authorization: await clientToken(oauth, this.#name, this.#end.signal) }
        : given;
      const attempt: Attempt = { sdk, target, way: "http", unasked: 0, hasEventStream: false };
      this.#attempt = attempt;
      this.#connecting = this.#begin(this.#options.timeouts.connectMs);
      const client = await this.#ended(this.#connecting, this.#connectBy("http", attempt, this.#connecting));
      this.#connecting = undefined;
      return client;
    } catch (error) {
      const end = this.#end;
      // The next call may come before the old connection is closed.
      this.#end = new AbortController();
      this.#connecting = undefined;
      this.#connected = undefined;
      end.abort(error);
      await this.#hangUp();
      throw error;
    }
  }

  /**
   * Connects to the server: by Streamable HTTP with `initialize`; by the protocol of 2026-07-28 when the server says it
   * has no other; by the transport of 2024-11-05 (HTTP with SSE) when the server answers 4xx, as the specification's
   * section on backwards compatibility has it.
   */
  async #connectBy(way: Way, attempt: Attempt, operation: Operation): Promise<Client> {
    attempt.way = way;
    attempt.made = attempt.sdk.newClient(way, attempt.target, this.#fetch);
    const { client, transport } = attempt.made;
    // Binds its requests to the operations that make them.
    const send = transport.send.bind(transport);
    transport.send = async (message, options) => {
      const id = "method" in message && "id" in message ? message.id : undefined;
      if (id === undefined) this.#countUnasked();
      const asked = this.#operations.get(options?.headers?.[OPERATION_HEADER] ?? "");
      if (!asked) return send(message, options);
      const { signal } = asked.abort;
      await send(message, {
        ...options,
        requestSignal: options?.requestSignal ? AbortSignal.any([options.requestSignal, signal]) : signal,
        // The package would wait for its time to run out. It takes no second answer to a request.
        onRequestStreamEnd: () => {
          if (id === undefined) return;
          const error = { code: CONNECTION_CLOSED, message: `${this.#name} closed its stream without an answer.` };
          transport.onmessage?.({ jsonrpc: "2.0", id, error });
        },
      });
    };
    try {
      await client.connect(transport, operation.request);
      return client;
    } catch (error) {
      const { status } = operation;
      if (way !== "http" || operation.abort.signal.aborted) throw error;
      const isModern = attempt.sdk.speaksOnlyModern(error);
      if (!isModern && !attempt.sdk.mayBeOld(status)) throw error;
      await this.#hangUp();
      if (isModern) return await this.#connectBy("modern", attempt, operation);
      return await this.#connectBy("sse", attempt, operation).catch(() => {
        // The first of the two failures is the server's answer to what it should understand.
        if (!operation.fault) operation.status = status;
        throw error;
      });
    }
  }

  async #hangUp(): Promise<void> {
    const { made } = this.#attempt ?? {};
    await made?.client.close().catch(() => {});
    await made?.transport.close().catch(() => {});
  }

  #countUnasked(): void {
    if (this.#attempt && ++this.#attempt.unasked <= MAX_UNASKED_REQUESTS) return;
    throw this.#lost(new ToolFault("protocol", `${this.#name} requests more input instead of answering.`));
  }

  /** An operation begins, and with it its time: at most `mostMs`, and not beyond the deadline. `#ended` must follow. */
  #begin(mostMs: number, { signal, traceparent, meta }: OperationOptions = {}): Operation {
    const { deadline = Number.POSITIVE_INFINITY } = this.#isClosing ? {} : this.#options;
    const timeoutMs = Math.max(1, Math.min(mostMs, deadline - Date.now()));
    const id = String(this.#nextOperation++);
    const abort = new AbortController();
    const reasons = signal ? [this.#end.signal, signal] : [this.#end.signal];
    const onAbort = () =>
      abort.abort(this.#isClosed ? this.#closed() : reasons.find((reason) => reason.aborted)?.reason);
    for (const reason of reasons) {
      if (reason.aborted) onAbort();
      reason.addEventListener("abort", onAbort, { once: true, signal: abort.signal });
    }
    const onTimeout = () =>
      abort.abort(new ToolFault("timeout", `${this.#name} did not answer within ${timeoutMs} ms.`));
    const operation: Operation = {
      id,
      abort,
      timer: setTimeout(onTimeout, timeoutMs),
      status: undefined,
      fault: undefined,
      traceparent,
      meta:
        traceparent === undefined && meta === undefined
          ? {}
          : { _meta: { ...meta, ...(traceparent !== undefined && { traceparent }) } },
      request: {
        headers: { [OPERATION_HEADER]: id },
        signal: abort.signal,
        // The package's own limit is a minute; ours comes first.
        timeout: timeoutMs + 60_000,
      },
    };
    this.#operations.set(id, operation);
    return operation;
  }

  /** The answer to an operation, within its time. Every failure comes out as a ToolFault or as an abort's reason. */
  async #ended<T>(operation: Operation, answer: Promise<T>): Promise<T> {
    const { abort } = operation;
    try {
      return await unlessAborted(answer, abort.signal);
    } catch (error) {
      throw abort.signal.aborted ? abort.signal.reason : this.#explained(error, operation);
    } finally {
      clearTimeout(operation.timer);
      this.#operations.delete(operation.id);
      // A stream that goes on after its answer has nothing more to say.
      abort.abort();
    }
  }

  /** The package's requests, with what it leaves out: who asked, how much may come back, and what may not be asked. */
  readonly #fetch = async (url: string | URL, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    const operation = this.#operations.get(headers.get(OPERATION_HEADER) ?? "") ?? this.#connecting;
    headers.delete(OPERATION_HEADER);
    if (operation?.traceparent !== undefined && !headers.has("traceparent")) {
      headers.set("traceparent", operation.traceparent);
    }
    const isGet = (init.method ?? "GET") === "GET";
    const attempt = this.#attempt;
    const isEventStream = isGet && attempt?.way === "sse";
    if (isEventStream) {
      // It opens another one when the first ends, and no answer would come on that.
      if (attempt.hasEventStream)
        throw this.#lost(new ToolFault("unreachable", `${this.#name} closed its event stream.`));
      attempt.hasEventStream = true;
    } else if (isGet && !headers.has("last-event-id")) {
      // A stream for the server's own messages: nothing reads them, and a Worker pays for keeping it.
      return new Response(null, { status: 405 });
    } else if (isGet) {
      this.#countUnasked();
    }
    const signals = [this.#end.signal];
    if (init.signal) signals.push(init.signal);
    if (operation && !isEventStream) signals.push(operation.abort.signal);
    const signal = AbortSignal.any(signals);
    const onEnd = (error: unknown) => {
      if (!(error instanceof ToolFault || error instanceof FetchFault)) return;
      if (isEventStream) this.#lost(toToolFault(error));
      else if (operation) operation.fault ??= toToolFault(error);
    };
    const { timeouts, maxBytes } = this.#options;
    const timeoutMs = timeouts.callMs + timeouts.connectMs;
    const guard = { ...attempt?.target.guard, timeoutMs, maxBytes, onEnd };
    const response = await guardedFetch(url, { ...init, headers, signal }, guard);
    if (operation) operation.status = response.ok ? undefined : response.status;
    if (response.status === 401 && attempt?.target.client) forgetToken(attempt.target.client);
    return response;
  };

  #explained(error: unknown, { fault, status }: Operation): ToolFault {
    if (error instanceof ToolFault || error instanceof FetchFault) return toToolFault(error);
    if (fault || !this.#attempt) return fault ?? toToolFault(error);
    const { sdk, target } = this.#attempt;
    return sdk.explain(error, { status, server: this.#name, target });
  }

  /** Ends every operation that waits for an answer, because none can arrive any more. */
  #lost(fault: ToolFault): ToolFault {
    for (const operation of this.#operations.values()) operation.abort.abort(fault);
    this.#end.abort(fault);
    void this.#hangUp();
    return fault;
  }
}
