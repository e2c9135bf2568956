import type { ToolConfig } from "../config/index.ts";
import type { CitationFilter } from "../contract/citations.ts";
import type { Replay, ToolDescription, ToolNamespace } from "../contract/engine.ts";
import type { McpAccess } from "../contract/mcp-access.ts";
import type { Plugin } from "../contract/plugin.ts";
import type { CalledTool, PendingCall, ToolOutcome } from "../contract/tool-call.ts";
import type { ApprovedCall, ListedTools, UnlistedServer } from "../contract/tool-session.ts";
import type { Item, ServerCall } from "../items/registry.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import type { FunctionTool, Tool as RequestTool } from "../protocol/tools.ts";
import type { ToolTime } from "./tool-time.ts";

/** A plugin with all that it takes to run its tools. */
export interface RunnablePlugin<Tool extends CalledTool = CalledTool, Call extends ServerCall = ServerCall>
  extends Plugin<Tool, Call> {
  /**
   * Throws the 400 of a tool of the request, `tools[index]`, that cannot be served: not set up, or not to be called.
   */
  check?(tool: RequestTool, index: number, options: SessionRequest): void;
  /** Begins its session in a turn whose request asks for it. */
  session(options: SessionOptions): PluginSession;
  /**
   * Takes what the input says of calls, such as approvals. `session` is absent where the request does not ask for the
   * tool. Throws the 400 of what cannot be.
   */
  takeInput?(options: SessionRequest, session: PluginSession | undefined): void;
}

/** What is known of a turn when its sessions begin. */
export interface SessionRequest {
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

/** What a plugin's session knows of its turn. */
export interface SessionOptions extends SessionRequest {
  /** Names of the client's tools: each comes before a tool of ours that has the same name. */
  clientFunctions: ReadonlySet<string>;
  time: ToolTime;
}

/** The state of a plugin in one turn. */
export interface PluginSession {
  /** What the model gets to see of it. With a namespace, the functions are for models that know none. */
  readonly offered: { namespace?: ToolNamespace; functions: readonly (FunctionTool | ToolDescription)[] };
  /** The tool that a model means by a name, if it is one of these. */
  resolve(name: string): CalledTool | undefined;
  /** Whether one of a tool that is chosen is left to the model; without this word all are. */
  offers?(name: string): boolean;
  /**
   * Runs a call. `traceparent` is for the server that it goes to. Throws ToolFault for one that cannot be run, and
   * whatever else prevents it; once `signal` is aborted, anything.
   */
  run(call: PendingCall, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome>;
  /** Ends what it has begun. Never rejects. */
  close?(): Promise<void>;

  /** As in `ToolSession`. */
  readonly unlisted?: readonly UnlistedServer[];
  list?(server: UnlistedServer, signal: AbortSignal, traceparent?: string): Promise<ListedTools>;
  readonly approved?: readonly ApprovedCall[];
  readonly container?: string;
  readonly citations?: () => CitationFilter;
}
