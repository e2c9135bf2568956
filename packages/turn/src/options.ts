import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { TurnAddress } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { CacheDiagnosis, InputTransformation, ResponseObject } from "@responses-edge/responses-api/response";
import type { OpenedCompaction } from "./compacted-past.ts";
import type { Engine, Prompt, Replay } from "./contract/engine.ts";
import type { Measurements } from "./contract/measurements.ts";
import type { Plugins } from "./contract/plugin.ts";
import type { Programs } from "./contract/programs.ts";
import type { ToolSession } from "./contract/tool-session.ts";
import type { BatchSink } from "./output-events.ts";
import type { RepetitionGuardMode } from "./repetition.ts";
import type { ReasoningSeal } from "./sealed-content/sealed-reasoning.ts";
import type { CompactionCodec, ProgramFingerprints } from "./sealed-content/sealing.ts";
import type { TurnState } from "./state.ts";
import type { Steering } from "./steering.ts";

/** The parts of a turn, each passed on unchanged. */
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
  /** The state of the turn at the end of its log, from which it continues. */
  logged?: TurnState | undefined;
}

/** The request of the turn. */
export interface Asked {
  /** As its engine has accepted it. */
  request: CreateRequest;
  address: TurnAddress;
  /** The model's name as the client knows it, and as vLLM does. */
  model: { name: string; upstream: string };
  cacheSalt: string;
  /** The answer to a hosted call, by the id of its item, that is given in place of running it. */
  givenOutput?: { item: string; output: string } | undefined;
  /** It is the task of another response's agent: its own items name no agent. */
  isTask?: boolean | undefined;
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
  /** This turn's input, with references resolved. */
  input: readonly Item[];
  /** The newest compaction of history and input. */
  opened?: OpenedCompaction | undefined;
  /** Items left out of the history because they could not be opened. */
  removed: readonly InputTransformation[];
  /** True if history and input are known to be only text messages. */
  isTextOnly?: true;
}

/** How a turn reaches its model. */
interface TurnModel {
  engine: Engine;
  /** Asks the model server whether it is gone. */
  isServerGone: (signal: AbortSignal) => Promise<boolean>;
  /** Sends the next requests to another model server, if there is one, because this one has failed. */
  leaveServer: () => void;
  /** The name of the model server that was asked last. */
  replica?: () => string;
}

export interface TurnBounds {
  /** How often a generation that broke off is resumed in each round; 0 lets it fail. */
  maxRetries: number;
  /** How many generations in a row may break off before their first word. */
  maxFruitless: number;
  /** How long the turn waits for an unreachable model server, in milliseconds. */
  outageMs: number;
  /** The longest JSON of the turn's whole output, in UTF-16 units; a turn that reaches it is `incomplete`. */
  outputLength: number;
  /** How often the turn goes on after asynchronous calls of its client; after that it ends with them. */
  maxRounds: number;
  /** The texts in which repetition is looked for. */
  repetitionGuard: RepetitionGuardMode;
}

interface TurnPlugins {
  plugins: Plugins;
  /** The session of the hosted tools that the request names, if it names any. */
  session?: ToolSession | undefined;
  /** Runs programs, where the deployment can. */
  programs?: Programs | undefined;
}

/** Content that clients do not see, or get only sealed. */
export interface TurnSecrets {
  /** Hides reasoning from clients. */
  hidesReasoning: boolean;
  /** Seals the reasoning that clients get, if the operator has keys for it. */
  seal: ReasoningSeal | undefined;
  /** Writes and reads the content of compaction items. */
  readonly compactions: CompactionCodec;
  /** Makes and checks the fingerprints of programs. */
  readonly programs: ProgramFingerprints;
}

export interface TurnHost {
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Ends the turn when its user sends another message; undefined where it cannot be steered. */
  steering?: Steering | undefined;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** Takes the events, if anybody reads them. */
  sink?: BatchSink | undefined;
  /** Keeps the host alive for work after the turn has ended. */
  waitUntil?: (promise: Promise<unknown>) => void;
  /** The request's measurements. */
  measured: Measurements;
  /** The comparison with an earlier prompt, if the request asked for it. Never rejects, and ends soon after the answer. */
  diagnosis?: Promise<CacheDiagnosis> | undefined;
  /** Called with each prompt that the model server has accepted. */
  onPrompt?: ((prompt: Prompt) => void) | undefined;
}
