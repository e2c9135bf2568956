import type { TurnAddress } from "@responses-edge/responses-api/ids";
import type { ServerAttempt } from "@responses-edge/turn/contract/engine";
import type { BatchSink } from "@responses-edge/turn/output-events";
import type { ShownResponse } from "@responses-edge/turn/response";
import type { TurnResult } from "@responses-edge/turn/turn";
import type { PastSource } from "../assembly/assemble-turn.ts";
import type { Config } from "../config/index.ts";
import type { Identity } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import type { AuditEvent } from "../store/deployment/keys/key-directory.ts";
import type { HomeClient } from "../store/home/home-client.ts";
import type { FileClient } from "../store/tenant/files/file-client.ts";
import type { StoreClient } from "../store/tenant/vector-stores/store-client.ts";
import type { Observation } from "../telemetry/telemetry.ts";

/**
 * The contract between a transport and the API. HTTP is one (`src/http/`), WebSocket another (`src/socket/`): each has
 * a sink, a loop that calls `createResponse`, and, if it keeps turns itself, a source of the history.
 */

/** Remembers that a request was counted, or refused, by its caller's limits. All copies of its `Caller` share it. */
export interface Counting {
  isDone: boolean;
}

/** The caller of an operation, with all that its transport and the platform provide. Every operation of the API takes it. */
export interface Caller {
  /** The configuration for this caller. */
  config: Config;
  tenant: string;
  /** The key of the tenant that asks, and its permissions. */
  identity: Identity;
  /** Counts the use of callers who have limits. */
  quotas: Env["QUOTAS"];
  /** Has the log of requests. */
  boards: Env["BOARD"];
  /** Remembers that the quota has counted this request. */
  counting: Counting;
  /** Sends the client further headers, where the answer can have them. */
  tell?: ((headers: Record<string, string>) => void) | undefined;
  /** Notes an action of the tenant's in the audit log, where there is one. */
  note?: ((event: Pick<AuditEvent, "type" | "target">) => void) | undefined;
  /** The tenant's homes. */
  homes: HomeClient;
  /** The tenant's files. */
  files: FileClient;
  /** The tenant's vector stores. */
  stores: StoreClient;
  /** The source of earlier turns. */
  past: PastSource;
  /** The length of the request's body in bytes, or in UTF-16 units; 0 without a body. */
  bodyLength: number;
  /** The session that a header of the request names. */
  clientSession?: string | undefined;
  /** Called with every attempt of every request to a model server for an answer. */
  onAttempt?: ((call: ServerAttempt) => void) | undefined;
  /** Takes foreground turns that no home stores, each before its terminal event. A transport may keep them itself. */
  keep?: ((turn: UnstoredTurn) => void) | undefined;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
  /** Gives the client's end of the connection, as `closedPeers` of `cli/serve/closed-peers.ts` has it; undefined where it is unknown. */
  peer?: (() => string | undefined) | undefined;
  /** The request's record in telemetry, if there is any. */
  observation?: Observation | undefined;
  /** Keeps the process alive for work after the answer. */
  waitUntil: (promise: Promise<unknown>) => void;
}

/** A turn with `store: false` that can be continued. Its input, with an id on each item, and the other fields are JSON texts. */
export interface UnstoredTurn {
  address: TurnAddress;
  input: string;
  output: string;
  /** The raw messages behind the items (`Replay[]`), or null. */
  messages: string | null;
}

/** The result of the creation of a run. */
export type CreatedRun =
  /** The response: ended, or, for a background run, in its current state. */
  | { kind: "response"; response: ShownResponse }
  /** A run in its home, followed from its first event: SSE, as `followResponse` gives it. */
  | { kind: "run"; events: ReadableStream<Uint8Array> };

/** The result of a creation. */
export type Created<Sink extends ClientSink> =
  | CreatedRun
  /** A foreground turn that runs while its client is connected. Its events go to `sink`. `ended` never rejects. */
  | { kind: "events"; sink: Sink; ended: Promise<TurnResult> };

/** Tells the client of a turn without `stream` that its answer is on the way. */
export interface SlowAnswer {
  /** Called when the model has begun to answer. The transport calls `onLeft` when it finds that the client has left. */
  begin(onLeft: () => void): void;
  /** True once the answer has begun. An error is then a failed response, because the status was sent already. */
  readonly hasBegun: boolean;
}

/** Leads the events of a foreground turn to its client. */
export interface ClientSink extends BatchSink {
  /**
   * A promise that resolves when the client has read everything sent so far; undefined if it has. A transport that
   * cannot tell lacks the method.
   */
  flushed?(): Promise<void> | undefined;
  /** Sends the rest, and the end. Never rejects. */
  end(): Promise<void>;
  /** Breaks the connection off, so that a client cannot take a partial answer for a complete one. Never rejects. */
  abandon(): Promise<void>;
}
