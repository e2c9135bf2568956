import type { Fetch } from "@responses-edge/outgoing-fetch/guarded";
import type { Connector } from "@responses-edge/outgoing-fetch/socket/connection";
import type { EngineName } from "@responses-edge/turn/contract/engine";
import type { DialectName } from "./dialects/dialect.ts";

/** The operator's settings of model servers and models. Durations are in milliseconds. */

/** The ways to a model server: by `fetch`, over sockets, or over sockets only for streams of tokens. */
export const TRANSPORTS = ["fetch", "socket", "mixed"] as const;
export type Transport = (typeof TRANSPORTS)[number];

/** A model server. */
export interface ModelServerConfig {
  /** Reveals nothing of the server's address: health, logs and answers may show it. */
  name: string;
  /** With `/v1`, without a slash at its end. Unique. Behind a binding its host is arbitrary. */
  baseUrl: string;
  /** Does not follow redirects. */
  fetch: Fetch;
  transport: Transport;
  /** Opens sockets; undefined: the global `connect` does. */
  connector: Connector | undefined;
  apiKey: string | undefined;
  /** Further headers for an access proxy before the server, by lower-case names. */
  headers: Readonly<Record<string, string>>;
  /**
   * The server's share of the conversations, compared with the others'. Above 0: a server of weight 0 keeps its old
   * conversations with the default weight.
   */
  weight: number;
  /** True if the server gets no new conversations. */
  drains: boolean;
  /** True if its conversations stay at a server that drains: it has weight 0. */
  keepsConversations: boolean;
  /**
   * The only models that the server is asked for, with its names by the clients' names; undefined: those that it lists.
   */
  models: ReadonlyMap<string, string> | undefined;
  /** The engine for all of its models; undefined: chosen by each one's name and card. */
  engine: EngineName | undefined;
  /** Tells whether the server uses `cache_salt`, as the operator says; undefined: by its model cards. */
  salted: boolean | undefined;
  /** The kind of server; undefined: as it says itself. */
  dialect: DialectName | undefined;
  /** True if the operator accepts that tenants share its prefix cache. */
  sharesCache: boolean;
  /** Most requests for answers in progress there at a time; undefined: as many as the server takes. */
  maxInFlight: number | undefined;
}

/** Timeouts of a model server, and the interval of health questions. */
export interface ServerBounds {
  /** The longest wait for headers. */
  connectTimeoutMs: number;
  /** The longest wait from the headers to the first byte. */
  firstByteTimeoutMs: number;
  /** The longest pause between two reads of a stream. */
  idleTimeoutMs: number;
  /** The pause after which `/health` is asked. */
  silenceMs: number;
}

/** How to treat a server that does not keep tenants apart; undefined if there cannot be two tenants. */
export type UnsaltedServers = "auto" | "warn" | "refuse" | undefined;

/** A pool of model servers. */
export interface UpstreamConfig extends ServerBounds {
  /** At least one. */
  modelServers: readonly ModelServerConfig[];
  /** The highest multiple of the mean load that one of several servers gets. */
  loadFactor: number;
  /** While another server is free, a request waits this long for headers before it goes there. */
  failoverMs: number;
  /** The interval at which a board asks the servers for all isolates; 0: there is no board. */
  boardMs: number;
  /** Most requests that wait for each saturated server, in one process. */
  maxWaiting: number;
  unsaltedServers: UnsaltedServers;
  /** Context windows in tokens, by a server's name of the model. They count more than those that servers report. */
  contextWindows: Readonly<Record<string, number>>;
}

/** When a model server's grammar lets a model choose between a call and the final text's format. */
export type FormatWithTools = "never" | "strict" | "always";

/** Settings of models with chat templates. */
export interface ChatConfig extends Pick<ModelSettings, "codexModels"> {
  formatWithTools: FormatWithTools;
  /** `thinking_token_budget` by the server's name of the model, then by the request's `reasoning.effort`. */
  thinkingBudgets: Readonly<Record<string, Readonly<Partial<Record<string, number>>>>>;
}

/** Settings of prompts for gpt-oss. */
export interface HarmonyConfig {
  /** `YYYY-MM-DD`; undefined: the date of the turn. */
  startDate?: string | undefined;
  /** Instructions are in the system message, after the model's identity. */
  systemInstructions: boolean;
  /** The position of the recipient in the header of a tool's answer: after the channel or before it. */
  toolHeader: "channel-first" | "recipient-first";
}

/** A model at the servers, and its share of the conversations, compared with the others'. Above 0. */
export interface RouteTarget {
  model: string;
  weight: number;
}

/** The models that answer for a name that clients use. */
export interface Route {
  /** At least one. */
  targets: readonly [RouteTarget, ...RouteTarget[]];
  /** Names, as clients use them. */
  fallbacks: readonly string[];
  contextFallbacks: readonly string[];
}

/** Settings that interpret names of models. */
export interface ModelSettings {
  modelServers: readonly ModelServerConfig[];
  /** By the clients' names. */
  routes: ReadonlyMap<string, Route>;
  /** The engine, by a server's name of the model. */
  modelEngines: Readonly<Record<string, EngineName>>;
  /** Context windows in tokens, by a server's name of the model. */
  contextWindows: UpstreamConfig["contextWindows"];
  /** Further fields of model cards, by a server's name of the model; `*` stands for all. */
  codexModels?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

/** Matches gpt-oss in the name of a model at vLLM, or in the path or repository that it was loaded from. */
export const GPT_OSS = /gpt-?oss/i;
