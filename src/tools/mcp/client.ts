import type { Client, RequestOptions, Tool, Transport } from "@modelcontextprotocol/client";
import { FetchFault, limitBody, unlessAborted } from "@responses-edge/guarded-fetch";
import type { ListedTool } from "@responses-edge/turn/tool-session";
import { ToolFault, toToolFault } from "../tool-fault.ts";
import { outputText, readTools, toListedTool } from "./answers.ts";
import { CONNECTION_CLOSED, explain, isOldTransport, type Sdk, secretsOf } from "./faults.ts";
import { mcpHeaders } from "./headers.ts";

/**
 * MCP servers that a request names, over the official client package. The package speaks the protocol; this module
 * bounds it: nothing waits longer, reads more, or connects elsewhere than it is told, whatever the server does.
 */

/** A server as a request's `mcp` tool names it. */
export interface McpServer {
  label: string;
  url: string;
  /** A token or a whole `Authorization` value. */
  authorization?: string;
  headers?: Record<string, string> | null;
}

export interface McpSessionOptions {
  /** Makes all requests, and decides which addresses may be called (`guardedFetch`). */
  fetch: (url: string, init: RequestInit) => Promise<Response>;
  /** How long connecting, listing the tools, and calling one may take. */
  timeouts: { connectMs: number; listMs: number; callMs: number };
  /** Any one answer of the server has at most so many, and its tools together. */
  maxBytes: number;
  /** A tool call's text has at most so many. */
  maxOutputBytes: number;
  maxTools: number;
  /** Ends the session and everything it does. */
  signal: AbortSignal;
}

export interface McpToolResult {
  output: string;
  /** The tool says that it failed; `output` tells why. */
  isError: boolean;
  structured?: unknown;
}

const CLIENT_INFO = { name: "responses-edge", version: "0.1.0" };

/** Requests that nobody asked for: cancellations, answers to the server's pings, streams that are resumed. */
const MAX_UNASKED_REQUESTS = 100;

/** How long the server may take over the end of a session. */
const CLOSE_TIMEOUT_MS = 2_000;

/** Says to the session's own fetch which operation a request belongs to; never sent. */
const OPERATION_HEADER = "x-mcp-operation";

/** The server speaks only the protocol of 2026-07-28, which knows no `initialize`. */
const UNSUPPORTED_PROTOCOL_VERSION = -32022;

/** Something asked of the server: its time, and the reason why it failed. */
interface Operation {
  id: string;
  abort: AbortController;
  /** The status of the last answer that was an HTTP error. */
  status: number | undefined;
  fault: ToolFault | undefined;
  /** The trace that the operation belongs to, of which the server is told. */
  traceparent: string | undefined;
  /** The same, as MCP itself hands it on, whatever its transport (SEP-414). */
  meta: { _meta?: { traceparent: string } };
}

/** `traceparent` tells the server which trace an operation belongs to. */
export interface OperationOptions {
  signal?: AbortSignal;
  traceparent?: string | undefined;
}

/** A connection to one MCP server. Calls may run side by side. To be closed when done. */
export class McpSession {
  readonly #server: McpServer;
  readonly #name: string;
  readonly #options: McpSessionOptions;
  readonly #headers: Headers;
  readonly #sdk: Sdk;
  readonly #operations = new Map<string, Operation>();
  readonly #end = new AbortController();
  /** Definitions as last listed: the 2026 protocol repeats some arguments as headers, which the definition names. */
  #tools = new Map<string, Tool>();
  #client: Client | undefined;
  #transport: Transport | undefined;
  #connecting: Operation | undefined;
  #nextOperation = 0;
  #unasked = 0;
  /** Set once the old transport's one event stream is open. */
  #hasEventStream = false;

  private constructor(server: McpServer, options: McpSessionOptions, sdk: Sdk) {
    this.#server = server;
    this.#name = `MCP server '${server.label}'`;
    if (!URL.canParse(server.url)) throw new ToolFault("refused_address", `The URL of ${this.#name} is not one.`);
    this.#options = options;
    this.#headers = mcpHeaders(server);
    this.#sdk = sdk;
    const onAbort = () => this.#end.abort(options.signal.reason);
    if (options.signal.aborted) onAbort();
    options.signal.addEventListener("abort", onAbort, { once: true, signal: this.#end.signal });
  }

  /**
   * Connects to a server: by Streamable HTTP with `initialize`; by the protocol of 2026-07-28 when the server says it
   * has no other; by the transport of 2024-11-05 (HTTP with SSE) when the server answers 4xx, as the specification's
   * section on backwards compatibility has it. Throws ToolFault, or the signal's reason once that is aborted.
   */
  static async connect(server: McpServer, options: McpSessionOptions): Promise<McpSession> {
    // Half a megabyte of code to evaluate, which only requests with MCP tools should pay for.
    const sdk = await import("./sdk.ts");
    const session = new McpSession(server, options, sdk);
    try {
      await session.#run(options.timeouts.connectMs, options.signal, (request, operation) =>
        session.#connect(request, operation),
      );
      return session;
    } catch (error) {
      session.#end.abort(error);
      await session.#hangUp();
      throw error;
    }
  }

  /**
   * All tools of the server, in its order. A tool whose name the specification does not allow is left out: no model
   * could call it. Throws ToolFault: `too_large` for more tools than `maxTools` or larger ones than a prompt can hold.
   */
  async listTools({ signal, traceparent }: OperationOptions = {}): Promise<ListedTool[]> {
    const { timeouts, maxTools, maxBytes } = this.#options;
    const bounds = { server: this.#name, maxTools, maxBytes };
    const read = async (request: RequestOptions, { meta }: Operation) =>
      readTools(this.#connected(), { ...bounds, request, meta });
    this.#tools = await this.#run(timeouts.listMs, signal, read, traceparent);
    return [...this.#tools.values()].map(toListedTool);
  }

  /**
   * Calls a tool. That the tool failed is a result, not an error; `timeoutMs` is `timeouts.callMs` unless given.
   * Throws ToolFault, or the signal's reason once that is aborted.
   */
  async callTool(
    name: string,
    args: Record<string, unknown>,
    { signal, traceparent, timeoutMs = this.#options.timeouts.callMs }: OperationOptions & { timeoutMs?: number } = {},
  ): Promise<McpToolResult> {
    const tool = this.#tools.get(name);
    // Without its output schema: that is the server's, and its patterns would be run here.
    const definition = tool && { toolDefinition: { name, inputSchema: tool.inputSchema } };
    const ask = async (request: RequestOptions, { meta }: Operation) =>
      this.#connected().callTool({ name, arguments: args, ...meta }, { ...request, ...definition });
    const result = await this.#run(timeoutMs, signal, ask, traceparent);
    const { structuredContent } = result;
    return {
      output: outputText(result, this.#options.maxOutputBytes),
      isError: result.isError === true,
      ...(structuredContent !== undefined && { structured: structuredContent }),
    };
  }

  /** Ends the session here and, if it has one, at the server. Never throws. */
  async close(): Promise<void> {
    const fault = new ToolFault("unreachable", `The session with ${this.#name} was closed.`);
    for (const operation of this.#operations.values()) operation.abort.abort(fault);
    const transport = this.#transport;
    if (!this.#end.signal.aborted && transport instanceof this.#sdk.StreamableHTTPClientTransport) {
      await this.#run(CLOSE_TIMEOUT_MS, undefined, () => transport.terminateSession()).catch(() => {});
    }
    this.#end.abort(fault);
    await this.#hangUp();
  }

  async #hangUp(): Promise<void> {
    await this.#client?.close().catch(() => {});
    await this.#transport?.close().catch(() => {});
  }

  #connected(): Client {
    if (!this.#client) throw new ToolFault("unreachable", `There is no session with ${this.#name}.`);
    return this.#client;
  }

  async #connect(request: RequestOptions, operation: Operation): Promise<void> {
    this.#connecting = operation;
    try {
      await this.#connectBy("http", request);
    } catch (error) {
      const { status } = operation;
      if (operation.abort.signal.aborted) throw error;
      if (this.#speaksOnlyModern(error)) {
        await this.#hangUp();
        await this.#connectBy("modern", request);
      } else if (isOldTransport(status)) {
        await this.#hangUp();
        await this.#connectBy("sse", request).catch(() => {
          // The first of the two failures is the server's answer to what it should understand.
          if (!operation.fault) operation.status = status;
          throw error;
        });
      } else {
        throw error;
      }
    } finally {
      this.#connecting = undefined;
    }
  }

  async #connectBy(way: "http" | "modern" | "sse", request: RequestOptions): Promise<void> {
    const { Client, SSEClientTransport, StreamableHTTPClientTransport } = this.#sdk;
    const options = { fetch: this.#fetch, requestInit: { headers: this.#headers } };
    const url = new URL(this.#server.url);
    this.#transport =
      way === "sse" ? new SSEClientTransport(url, options) : new StreamableHTTPClientTransport(url, options);
    const transport = this.#transport;
    // Binds its requests to the operations that make them.
    const send = transport.send.bind(transport);
    transport.send = async (message, options) => {
      if (!("method" in message && "id" in message)) this.#countUnasked();
      const operation = this.#operations.get(options?.headers?.[OPERATION_HEADER] ?? "");
      if (!operation) return send(message, options);
      const { signal } = operation.abort;
      await send(message, {
        ...options,
        requestSignal: options?.requestSignal ? AbortSignal.any([options.requestSignal, signal]) : signal,
        // The package would wait for its time to run out. It takes no second answer to a request.
        onRequestStreamEnd: () => {
          if (!("method" in message && "id" in message)) return;
          const error = { code: CONNECTION_CLOSED, message: `${this.#name} closed its stream without an answer.` };
          transport.onmessage?.({ jsonrpc: "2.0", id: message.id, error });
        },
      });
    };
    this.#client = new Client(CLIENT_INFO, {
      // Nobody is there to be asked.
      inputRequired: { autoFulfill: false },
      // A schema's patterns are the server's, and would be run here.
      jsonSchemaValidator: {
        getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
      },
      ...(way === "modern" && { versionNegotiation: { mode: "auto" } }),
    });
    await this.#client.connect(transport, request);
  }

  #countUnasked(): void {
    if (++this.#unasked <= MAX_UNASKED_REQUESTS) return;
    throw this.#lost(new ToolFault("protocol", `${this.#name} asks for more than it was asked.`));
  }

  /** The error of a server that has left `initialize` behind, in the body of a 400 or as the answer. */
  #speaksOnlyModern(error: unknown): boolean {
    const { ProtocolError, SdkHttpError } = this.#sdk;
    if (error instanceof ProtocolError) return error.code === UNSUPPORTED_PROTOCOL_VERSION;
    if (!(error instanceof SdkHttpError) || typeof error.data.text !== "string") return false;
    try {
      const body = JSON.parse(error.data.text) as { error?: { code?: unknown } } | null;
      return body?.error?.code === UNSUPPORTED_PROTOCOL_VERSION;
    } catch {
      return false;
    }
  }

  /** Runs an operation within its time. Every failure comes out as a ToolFault or as an abort's reason. */
  async #run<T>(
    timeoutMs: number,
    signal: AbortSignal | undefined,
    ask: (request: RequestOptions, operation: Operation) => Promise<T>,
    traceparent?: string,
  ): Promise<T> {
    const operation: Operation = {
      id: String(this.#nextOperation++),
      abort: new AbortController(),
      status: undefined,
      fault: undefined,
      traceparent,
      meta: traceparent === undefined ? {} : { _meta: { traceparent } },
    };
    const { abort } = operation;
    const reasons = [this.#end.signal, ...(signal ? [signal] : [])];
    const onAbort = () => abort.abort(reasons.find((reason) => reason.aborted)?.reason);
    for (const reason of reasons) {
      if (reason.aborted) onAbort();
      reason.addEventListener("abort", onAbort, { once: true, signal: abort.signal });
    }
    const timer = setTimeout(
      () => abort.abort(new ToolFault("timeout", `${this.#name} did not answer within ${timeoutMs} ms.`)),
      timeoutMs,
    );
    this.#operations.set(operation.id, operation);
    const request: RequestOptions = {
      headers: { [OPERATION_HEADER]: operation.id },
      signal: abort.signal,
      // The package's own limit is a minute; ours comes first.
      timeout: timeoutMs + 60_000,
    };
    try {
      return await unlessAborted(ask(request, operation), abort.signal);
    } catch (error) {
      throw abort.signal.aborted ? abort.signal.reason : this.#explained(error, operation);
    } finally {
      clearTimeout(timer);
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
    const isEventStream = isGet && this.#transport instanceof this.#sdk.SSEClientTransport;
    if (isEventStream) {
      // It opens another one when the first ends, and no answer would come on that.
      if (this.#hasEventStream)
        throw this.#lost(new ToolFault("unreachable", `${this.#name} closed its event stream.`));
      this.#hasEventStream = true;
    } else if (isGet && !headers.has("last-event-id")) {
      // A stream for what the server has to say of its own accord: nobody listens, and a Worker pays for keeping it.
      return new Response(null, { status: 405 });
    } else if (isGet) {
      this.#countUnasked();
    }
    const signals = [this.#end.signal];
    if (init.signal) signals.push(init.signal);
    if (operation && !isEventStream) signals.push(operation.abort.signal);
    const signal = AbortSignal.any(signals);
    const note = (error: unknown) => {
      if (!(error instanceof ToolFault || error instanceof FetchFault)) return;
      if (isEventStream) this.#lost(toToolFault(error));
      else if (operation) operation.fault ??= toToolFault(error);
    };
    try {
      const response = await this.#options.fetch(String(url), { ...init, headers, signal });
      if (operation) operation.status = response.ok ? undefined : response.status;
      return limitBody(response, { maxBytes: this.#options.maxBytes, signal, onEnd: note });
    } catch (error) {
      note(error);
      throw error;
    }
  };

  #explained(error: unknown, { fault, status }: Operation): ToolFault {
    if (error instanceof ToolFault || error instanceof FetchFault) return toToolFault(error);
    if (fault) return fault;
    const secrets = secretsOf(this.#server.url, this.#headers);
    return explain(error, { status, server: this.#name, secrets }, this.#sdk);
  }

  /** Ends everything that waits for an answer: none can come any more. */
  #lost(fault: ToolFault): ToolFault {
    for (const operation of this.#operations.values()) operation.abort.abort(fault);
    this.#end.abort(fault);
    void this.#hangUp();
    return fault;
  }
}
