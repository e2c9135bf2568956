import type { Fetch } from "@responses-edge/guarded-fetch";
import type { Connect } from "@responses-edge/socket-fetch/connection";
import type { EngineName } from "@responses-edge/turn/engine";
import type { DialectName } from "./dialects/dialect.ts";

/** The operator's settings of model servers and models. Durations are in milliseconds. */

/** The ways to a model server: by `fetch`, over sockets, or over sockets for streams of tokens alone. */
export const TRANSPORTS = ["fetch", "socket", "mixed"] as const;
export type Transport = (typeof TRANSPORTS)[number];

/** A model server. */
export interface ModelServerConfig {
  /** Tells nothing of where the server is: health, logs and answers may have it. */
  name: string;
  /** With `/v1`, without a slash at its end. No two servers have the same. Behind a binding its host means nothing. */
  baseUrl: string;
  /** Follows no redirect. */
  fetch: Fetch;
  transport: Transport;
  /** Opens a socket; undefined: the global `connect`. */
  connect: Connect | undefined;
  apiKey: string | undefined;
  /** Further headers for an access proxy before the server, by lower-case names. */
  headers: Readonly<Record<string, string>>;
  /** The server's share of the conversations, compared with the others'. Above 0: a server of weight 0 keeps as many of its old ones as any other. */
  weight: number;
  /** True if the server gets no new conversations. */
  drains: boolean;
  /** True if its conversations stay at a server that drains: it has weight 0. */
  keepsConversations: boolean;
  /** The only models that the server is asked for, with their names there by the names that clients say; undefined: those that it lists. */
  models: ReadonlyMap<string, string> | undefined;
  /** How all of its models are spoken to; undefined: as each one's name and card tell. */
  engine: EngineName | undefined;
  /** True if the server heeds `cache_salt`, where the operator says so; undefined: as its model cards tell. */
  salted: boolean | undefined;
  /** The kind of server; undefined: as it says itself. */
  dialect: DialectName | undefined;
  /** True if the operator accepts that tenants share its prefix cache. */
  sharesCache: boolean;
}

/** How long a model server may take, and how it is asked whether it is gone. */
export interface ServerBounds {
  /** The longest wait for headers. */
  connectTimeoutMs: number;
  /** The longest wait from the headers to the first byte. */
  firstByteTimeoutMs: number;
  /** The longest pause between two reads of a stream. */
  idleTimeoutMs: number;
  /** After a pause this long, `/health` is asked. */
  silenceMs: number;
}

/** The treatment of a server that does not keep tenants apart; undefined where there are no two tenants. */
export type UnsaltedServers = "auto" | "warn" | "refuse" | undefined;

/** A pool of model servers. */
export interface UpstreamConfig extends ServerBounds {
  /** At least one. */
  modelServers: readonly ModelServerConfig[];
  /** The greatest multiple of the mean load that one of several servers gets. */
  loadFactor: number;
  /** While another server is free, a request waits this long for response headers before it goes there. */
  failoverMs: number;
  /** The interval of a board that asks the servers for all isolates; 0: there is none. */
  boardMs: number;
  unsaltedServers: UnsaltedServers;
}

/** Says when a model server's grammar lets a model choose between a call and the final text's format. */
export type FormatWithTools = "never" | "strict" | "always";

/** How models with chat templates are asked. */
export interface ChatConfig {
  formatWithTools: FormatWithTools;
  /** `thinking_token_budget` by the model's name at the server, then by the request's `reasoning.effort`. */
  thinkingBudgets: Readonly<Record<string, Readonly<Partial<Record<string, number>>>>>;
}

/** How prompts for gpt-oss are written. */
export interface HarmonyConfig {
  /** `YYYY-MM-DD`; undefined: the turn's own date. */
  startDate?: string | undefined;
  /** Instructions stand in the system message, behind the model's identity. */
  systemInstructions: boolean;
  /** Where the header of a tool's answer names its recipient: behind the channel or before it. */
  toolHeader: "channel-first" | "recipient-first";
}

/** A model at the servers, and its share of the conversations, compared with the others'. Above 0. */
export interface RouteTarget {
  model: string;
  weight: number;
}

/** Which models answer for a name that clients say. */
export interface Route {
  /** At least one. */
  targets: readonly [RouteTarget, ...RouteTarget[]];
  /** Names, as clients say them. */
  fallbacks: readonly string[];
  contextFallbacks: readonly string[];
}

/** How names of models are read. */
export interface ModelSettings {
  modelServers: readonly ModelServerConfig[];
  /** By the names that clients say. */
  routes: ReadonlyMap<string, Route>;
  /** By the name that a server knows: how the model is spoken to. */
  modelEngines: Readonly<Record<string, EngineName>>;
}
