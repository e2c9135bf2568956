import { violationOf } from "@responses-edge/grammar";
import type { Cite } from "@responses-edge/hosted-tools/browser/citation-marks";
import type { ImageMaker } from "@responses-edge/hosted-tools/image-generation";
import { ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { Item, OutputItem, ServerCall } from "@responses-edge/responses-api/items/registry";
import type { FunctionTool, McpAccess, Tool as RequestTool } from "@responses-edge/responses-api/tools";
import type { Replay, ToolDescription, ToolNamespace } from "@responses-edge/turn/contract/engine";
import type { Plugin } from "@responses-edge/turn/contract/plugin";
import type {
  ApprovedCall,
  CalledTool,
  Citation,
  PendingCall,
  ToolOutcome,
  UnlistedServer,
} from "@responses-edge/turn/contract/tool-session";
import type { ToolConfig } from "../config/index.ts";
import type { AgentIdentity, AgentRuns } from "../contract/agent-runs.ts";
import type { ContainerFiles, GivenFile } from "../contract/container-files.ts";
import type { StoreSearch } from "../contract/store-search.ts";

/** A plugin with everything that runs its tools. */
export interface RunnablePlugin<Tool extends CalledTool = CalledTool, Call extends ServerCall = ServerCall>
  extends Plugin<Tool, Call> {
  /** Throws the 400 of a tool of the request, `tools[index]`, that cannot be served: it is not configured, or may not be called. */
  check?(tool: RequestTool, index: number, options: SessionRequest): void;
  /** Begins its session in a turn whose request asks for it. */
  session(options: SessionOptions): PluginSession;
  /**
   * Takes the input's items about calls, such as approvals. `session` is absent if the request does not ask for the
   * tool. Throws the 400 of invalid ones.
   */
  takeInput?(options: SessionRequest, session: PluginSession | undefined): void;
}

/** A turn, as its sessions know it when they begin. */
export interface SessionRequest {
  request: CreateRequest;
  /** True if the items and the output are only text: no lists of tools, no calls, and no approvals of them. */
  hasOnlyText?: boolean;
  config: ToolConfig;
  /** By server label. A label may be missing after a restart. */
  access: Readonly<Record<string, McpAccess>>;
  /** History and input, and the raw messages behind them. */
  items: readonly Item[];
  /** The turn's own input among them. */
  input: readonly Item[];
  replays: readonly Replay[];
  /** The turn's output from before a crash. */
  output: readonly { type: string }[];
  /** With the container, it names a session on the operator's tool servers. */
  tenant: string;
  /** `container_id` of a turn that makes a container. */
  ownContainer: string;
  /** Searches the tenant's vector stores; undefined if the turn's host cannot. */
  searchStores: StoreSearch | undefined;
  /** Draws images; undefined if the deployment has no image server. */
  images: ImageMaker | undefined;
  /** The key of the turn's home. */
  home: string;
  /** The agent whose task the turn is; undefined for the root. */
  agent: AgentIdentity | undefined;
  /** Runs the tasks of sub-agents; undefined if the request has none. */
  agents: AgentRuns | undefined;
  /** Shows items before their call has ended, for clients that may answer them; undefined in a turn that takes no outputs. */
  show?: ((items: readonly OutputItem[]) => void) | undefined;
  /** Reads and stores files for containers; undefined if the turn's host cannot. */
  containerFiles: (() => ContainerFiles) | undefined;
  /** The files that the request gives to its container, with their names if known. */
  givenFiles: readonly GivenFile[];
}

/** The same, as each plugin's session knows it. */
export interface SessionOptions extends SessionRequest {
  /** Names of the client's tools: each comes before a tool of ours that has the same name. */
  clientFunctions: Pick<ReadonlySet<string>, "has">;
  /** When all tools of the turn must have ended, Unix milliseconds. */
  deadline: number;
}

/** The state of a plugin in one turn. */
export interface PluginSession {
  /** The tools that the model sees. With a namespace, the functions are for models without namespaces. */
  readonly offered: { namespace?: ToolNamespace; functions: readonly (FunctionTool | ToolDescription)[] };
  /** The tools of this plugin, by the names by which a model means them. */
  readonly tools: ReadonlyMap<string, CalledTool>;
  /** The tool of the request to which a tool belongs, where the plugin has several. */
  asked?(tool: CalledTool): RequestTool | undefined;
  /** True if one of its tools remains available under the request's choice. Without this function all do. */
  offers?(tool: CalledTool): boolean;
  /** The tool of the request (`hostedKey`) that offers the model nothing, and why, as a sentence for the client. */
  readonly idle?: { key: string; why: string };
  /**
   * Runs a call. `traceparent` is for the server that it calls. Throws ToolFault, or any other error that prevents the
   * call; once `signal` is aborted, anything.
   */
  run(call: PendingCall, signal: AbortSignal, traceparent?: string): Promise<ToolOutcome>;
  /** As in `ToolSession`. */
  inject?(items: readonly Item[]): void;
  /** Ends everything that the session has begun. Never rejects. */
  close?(): Promise<void>;

  /** As in `ToolSession`. */
  readonly unlisted?: readonly UnlistedServer[];
  readonly approved?: readonly ApprovedCall[];
  open?(signal: AbortSignal): Promise<void>;
  container?(): string;
  /** Makes citations of the marks in the model's text. */
  readonly cite?: Cite;
  /** As in `ToolSession`. */
  citationsIn?(text: string): readonly Citation[];
}

/** The tools of a Harmony namespace as functions, for models without namespaces: `browser_search`. */
export function asFunctions({ name, tools }: ToolNamespace): ToolDescription[] {
  return tools.map((tool) => ({ ...tool, name: `${name}_${tool.name}` }));
}

/**
 * Throws the fault of arguments that do not match the schema of their function, before the tool is called: the model reads it as the call's
 * output. Text that is no JSON object is not judged here.
 */
export function refuseArguments(args: Record<string, unknown> | undefined, schema: unknown): void {
  const violation = args && schema ? violationOf(args, schema) : undefined;
  if (violation === undefined) return;
  throw new ToolFault("tool", `The arguments do not match the tool's schema: ${violation}. The tool was not called.`);
}

/** The fault of a call when the tools of a turn have no time left. */
export function outOfTime(): ToolFault {
  return new ToolFault("timeout", "The tools of this turn have used up their time.");
}

/** At most `ms`, and not beyond `deadline`. In milliseconds, at least one. */
export function timeLeft(deadline: number, ms: number): number {
  return Math.max(1, Math.min(ms, deadline - Date.now()));
}

/** Runs functions one after another, in the order of the calls: for tools that have a state. */
export function inOrder(deadline: number): <T>(work: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const done = last.then(() => {
      if (Date.now() >= deadline) throw outOfTime();
      return work();
    });
    last = done.catch(() => {});
    return done;
  };
}
