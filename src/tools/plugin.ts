import type { ImageMaker } from "@responses-edge/image-generation";
import { ToolFault } from "@responses-edge/mcp-client";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import type { Item, ServerCall } from "@responses-edge/responses-api/items/registry";
import type { FunctionTool, McpAccess, Tool as RequestTool } from "@responses-edge/responses-api/tools";
import type { Replay, ToolDescription, ToolNamespace } from "@responses-edge/turn/engine";
import type { Plugin } from "@responses-edge/turn/plugin";
import type {
  ApprovedCall,
  CalledTool,
  Citation,
  ListedTools,
  PendingCall,
  ToolOutcome,
  UnlistedServer,
} from "@responses-edge/turn/tool-session";
import type { ToolConfig } from "../config/index.ts";
import type { ContainerFiles, GivenFile } from "../contract/container-files.ts";
import type { StoreSearch } from "../contract/store-search.ts";
import type { Cite } from "./citation-marks.ts";

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

/** A turn, as its sessions know it when they begin. */
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
  /** Searches the tenant's vector stores; undefined where the turn's host has none. */
  searchStores: StoreSearch | undefined;
  /** Draws images; undefined where the deployment has no server for them. */
  images: ImageMaker | undefined;
  /** Reads and keeps files for containers; undefined where the turn's host has none. */
  containerFiles: (() => ContainerFiles) | undefined;
  /** The files that the request gives to its container, as far as their names are known. */
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
  /** The tools that the model gets to see. With a namespace, the functions are for models that know none. */
  readonly offered: { namespace?: ToolNamespace; functions: readonly (FunctionTool | ToolDescription)[] };
  /** The tool that a model means by a name, if it is one of these. */
  resolve(name: string): CalledTool | undefined;
  /** True if one of a tool that is chosen is left to the model; without this word all are. */
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
  /** Makes citations of marks in what the model says. */
  readonly cite?: Cite;
  /** As in `ToolSession`. */
  citationsIn?(text: string): readonly Citation[];
}

/** The tools of a Harmony namespace as functions, for models that know no namespaces: `browser_search`. */
export function asFunctions({ name, tools }: ToolNamespace): ToolDescription[] {
  return tools.map((tool) => ({ ...tool, name: `${name}_${tool.name}` }));
}

/** The fault of a call when the tools of a turn have no time left. */
export function outOfTime(): ToolFault {
  return new ToolFault("timeout", "The tools of this turn have used up their time.");
}

/** At most `ms`, and not beyond `deadline`. In milliseconds, at least one. */
export function timeLeft(deadline: number, ms: number): number {
  return Math.max(1, Math.min(ms, deadline - Date.now()));
}

/** Runs what it is given one after another, in the order in which it is given: for tools that have a state. */
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
