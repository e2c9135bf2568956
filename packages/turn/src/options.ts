import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import type { TurnAddress } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { InputTransformation, ResponseObject } from "@responses-edge/responses-api/response";
import type { OpenedCompaction } from "./compacted-past.ts";
import type { Engine, Replay } from "./engine.ts";
import type { Measurements } from "./measurements.ts";
import type { BatchSink } from "./output-events.ts";
import type { Plugins } from "./plugin.ts";
import type { ReasoningSeal } from "./sealed-reasoning.ts";
import type { CompactionCodec } from "./sealing.ts";
import type { TurnState } from "./state.ts";
import type { Steering } from "./steering.ts";
import type { ToolSession } from "./tool-session.ts";

/** The parts that a turn is made of. Each is passed on as it is. */
export interface TurnOptions {
  asked: Asked;
  past: TurnPast;
  model: TurnModel;
  bounds: TurnBounds;
  tools: TurnPlugins;
  secrets: TurnSecrets;
  /** Tells the judgements of the turn's texts, where they are judged. */
  moderation?: ModerationRecord | undefined;
  host: TurnHost;
  /** The state of the turn at the end of its log: it goes on from there. */
  logged?: TurnState | undefined;
}

/** The question. */
export interface Asked {
  /** As its engine has accepted it. */
  request: CreateRequest;
  address: TurnAddress;
  /** The model's name as the client knows it, and as vLLM does. */
  model: { name: string; upstream: string };
  cacheSalt: string;
  /** Unix milliseconds. */
  createdAt: number;
}

/** The judgements of a turn's texts, and the tokens that the guard has read for them. */
interface ModerationRecord {
  readonly result: ResponseObject["moderation"];
  readonly used: { model: string; tokens: number };
}

export interface TurnPast {
  /** Items of earlier turns, oldest first, and the raw messages behind them. */
  history: readonly Item[];
  replays: readonly Replay[];
  /** This turn's input, references resolved. */
  input: readonly Item[];
  /** The newest compaction of history and input. */
  opened?: OpenedCompaction | undefined;
  /** The items that were left out of the past, because they could not be opened. */
  removed: readonly InputTransformation[];
  /** History and input are known to be messages of text alone. */
  isTextOnly?: true;
}

/** How a turn reaches its model. */
interface TurnModel {
  engine: Engine;
  /** Asks the model server whether it is gone. */
  isServerGone: (signal: AbortSignal) => Promise<boolean>;
  /** Has what comes next asked of another model server, where there is one: this one has broken off. */
  leaveServer: () => void;
  /** The name of the model server that was asked last. */
  replica?: () => string;
}

export interface TurnBounds {
  /** How often a generation that broke off is resumed in each round; 0 lets it fail. */
  maxRetries: number;
  /** How many may break off in a row before their first word. */
  maxFruitless: number;
  /** How long an outage of the model server is waited for, in milliseconds. */
  outageMs: number;
  /** The most that all output of the turn may take as JSON, in UTF-16 units; a turn that reaches it is `incomplete`. */
  outputLength: number;
}

interface TurnPlugins {
  plugins: Plugins;
  /** Those of them that the request names, if it names any. */
  session?: ToolSession | undefined;
}

/** The parts that are kept from clients, or given to them sealed. */
export interface TurnSecrets {
  /** No client gets to see what the model thinks. */
  hidesReasoning: boolean;
  /** Seals the reasoning that clients get, where the operator has keys for it. */
  seal: ReasoningSeal | undefined;
  /** Writes and reads what compaction items carry. */
  readonly compactions: CompactionCodec;
}

export interface TurnHost {
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Ends the turn for what its user says meanwhile, where it may be steered. */
  steering?: Steering | undefined;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** Takes the events, where anybody wants them. */
  sink?: BatchSink | undefined;
  /** Keeps the host alive for what is still to be done when the turn has ended. */
  waitUntil?: (promise: Promise<unknown>) => void;
  /** The request's measurements, where anybody wants to know. */
  measured?: Measurements | undefined;
}
