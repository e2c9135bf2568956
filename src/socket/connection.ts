import { LongWork } from "@responses-edge/bounded-io/long-work";
import { ApiError, invalidRequest, serverIsStopping, tooManyInProgress } from "@responses-edge/responses-api/errors";
import type { JsonObject } from "@responses-edge/responses-api/json";
import { bodyTooLarge, parseBody, parseJson } from "@responses-edge/responses-api/json";
import { maySteer, withMessages } from "@responses-edge/responses-api/steering";
import { Steering } from "@responses-edge/turn/steering";
import { createResponse } from "../api/create-response.ts";
import { countedWork } from "../api/limit-reservation.ts";
import type { Caller } from "../api/transport.ts";
import type { Config } from "../config/index.ts";
import { Permits, tenantSockets } from "../store/limits/permits.ts";
import { clientsAreToLeave, processState, whenProcessEnds } from "../store/objects/process-state.ts";
import { FrameCount } from "./frame-count.ts";
import { errorFrame, readCreate, readFrame } from "./frames.ts";
import { KeptTurns } from "./kept-turns.ts";
import { LaneSink } from "./lane-sink.ts";
import { Lanes } from "./lanes.ts";
import { Outbox, type Wire } from "./outbox.ts";
import { ConnectionSteering, type QueuedWords } from "./steering.ts";

/**
 * One client's WebSocket: receives its frames, sends the events of its responses. It knows nothing of workerd
 * (`upgrade.ts`).
 *
 * An error of a create is an `error` frame and leaves the connection open. A turn that has begun ends with its own
 * terminal event instead. Closing the connection, from either side, aborts all its requests.
 */

export interface ConnectionOptions {
  tenant: string;
  config: Pick<
    Config,
    | "maxRequestBytes"
    | "maxOpenTurns"
    | "maxWebSocketsPerTenant"
    | "heartbeatMs"
    | "socketLifetimeMs"
    | "socketSendTimeoutMs"
  >;
  /**
   * The caller, authenticated anew for each create, until `signal` is aborted. Throws the 401 of a key that is no
   * longer valid; the connection then ends.
   */
  caller: (signal: AbortSignal) => Caller | Promise<Caller>;
  /** The session id of an agent: the client got it when it connected, and repeats it. */
  turnState?: string | undefined;
  /** Events have Open Responses' names. */
  speaksOpenResponses?: boolean;
  /** The error as the client sees it. A create that was cut off because the client `hasLeft` is no fault. */
  shown: (error: unknown, hasLeft: boolean) => ApiError;
  /** Called once, when the connection has ended. */
  onEnded?: (() => void) | undefined;
}

/** The most unread frames, as a multiple of the largest frame. */
const MAX_UNREAD_BODIES = 3;

/** The microseconds that a frame takes, about, and those of the beginning of a create. */
const UNITS_PER_FRAME = 100;
const UNITS_PER_CREATE = 1_000;

/** Close codes of RFC 6455. */
const NORMAL = 1000;
const POLICY_VIOLATION = 1008;
/** The code "Service Restart" of IANA's registry. */
const SERVICE_RESTART = 1012;

const encoder = new TextEncoder();

export class Connection {
  readonly #wire: Wire;
  readonly #options: ConnectionOptions;
  readonly #outbox: Outbox;
  readonly #lanes: Lanes;
  readonly #kept: KeptTurns;
  /** One for each create that runs. */
  readonly #aborts = new Set<AbortController>();
  /** Ends its count among the tenant's connections. */
  readonly #uncount: () => void;
  readonly #steering: ConnectionSteering;
  readonly #lifetime: ReturnType<typeof setTimeout>;
  /** Stops waiting for the process's end. */
  readonly #forgetEnd: () => void;
  /** Unread frames. A frame that is refused regardless of its content is only its error. */
  #inbox: (string | ApiError)[] = [];
  #inboxLength = 0;
  readonly #work: LongWork;
  /** Memory permits of frames that have come and are not running yet. */
  readonly #permits: Permits;
  #isReading = false;
  readonly #frames: FrameCount;
  #isClosed = false;

  /** Throws the 429 of a tenant that has as many connections as it may. */
  constructor(wire: Wire, options: ConnectionOptions) {
    const { tenant, config } = options;
    const uncount = tenantSockets.of(tenant, crypto.randomUUID(), this).take(config.maxWebSocketsPerTenant);
    if (!uncount) throw tooManyConnections(config.maxWebSocketsPerTenant);
    this.#uncount = uncount;
    this.#wire = wire;
    this.#options = options;
    this.#outbox = new Outbox(wire, config.socketSendTimeoutMs, {
      onUnread: () => this.#close(POLICY_VIOLATION, "The client does not read its frames."),
      onGone: () => this.leave(),
    });
    this.#lanes = new Lanes(config.maxRequestBytes);
    this.#kept = new KeptTurns(tenant);
    this.#work = new LongWork(tenant);
    this.#frames = new FrameCount(tenant);
    this.#steering = new ConnectionSteering((frame) => this.#outbox.send(frame));
    this.#permits = new Permits("text", { tenant, config });
    this.#lifetime = setTimeout(
      () => this.#end(lifetimeOver(config.socketLifetimeMs), NORMAL),
      config.socketLifetimeMs,
    );
    this.#forgetEnd = whenProcessEnds(() => this.#retire(), clientsAreToLeave);
  }

  /** Takes a frame as the socket gives it: text, or something else. */
  receive(data: unknown): void {
    if (this.#isClosed) return;
    const { maxRequestBytes } = this.#options.config;
    const frame = this.#admitted(data);
    this.#inbox.push(frame);
    this.#inboxLength += typeof frame === "string" ? frame.length : 0;
    const excess = this.#frames.take(lengthOf(data));
    if (excess !== undefined) this.#end(tooMuch(excess), POLICY_VIOLATION);
    else if (this.#inboxLength > MAX_UNREAD_BODIES * maxRequestBytes) this.#end(tooMuch("bytes"), POLICY_VIOLATION);
    else void this.#read();
  }

  /** A frame of text that has memory permits, or the error that refuses it. */
  #admitted(data: unknown): string | ApiError {
    const { maxRequestBytes } = this.#options.config;
    if (typeof data !== "string") return notText();
    if (data.length > maxRequestBytes) return bodyTooLarge(maxRequestBytes);
    try {
      this.#permits.resize(this.#heldLength + data.length);
      return data;
    } catch (error) {
      return this.#shown(error);
    }
  }

  /** Gives back the permits of frames that are running, or were refused. */
  #giveBack(): void {
    this.#permits.resize(this.#heldLength, true);
  }

  /** All that was sent and does not run yet, in UTF-16 units. */
  get #heldLength(): number {
    return this.#inboxLength + this.#lanes.waitingLength + this.#steering.length;
  }

  /** The client has gone: ends all its requests, and the connection's count. */
  leave(): void {
    this.#uncount();
    this.#stop();
  }

  /** Ends all requests of the client. */
  #stop(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#lifetime);
    this.#forgetEnd();
    this.#outbox.close();
    this.#lanes.clear();
    this.#frames.leave(this.#inbox.length);
    this.#inbox = [];
    this.#permits[Symbol.dispose]();
    for (const abort of this.#aborts) abort.abort();
    this.#kept.clear();
    this.#options.onEnded?.();
  }

  /** Closes the connection when no request is left, because the process ends. Responses in progress are sent to their end. */
  #retire(): void {
    if (this.#aborts.size === 0) this.#close(SERVICE_RESTART, "The server is about to stop.");
  }

  /** Sends the error, and closes. */
  #end(error: ApiError, code: number, lane?: string): void {
    if (this.#isClosed) return;
    this.#outbox.send(errorFrame(error, lane));
    this.#close(code, error.message);
  }

  #close(code: number, reason: string): void {
    if (this.#isClosed) return;
    // The connection counts until the client has closed it, too, because workerd keeps it until then.
    this.#stop();
    // A close frame takes 123 bytes.
    this.#wire.close(code, reason.slice(0, 120));
  }

  /** Reads the received frames one after another, and none while the client does not read the answers. */
  async #read(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    for (let frame = this.#inbox.shift(); frame !== undefined; frame = this.#inbox.shift()) {
      this.#frames.leave(1);
      this.#inboxLength -= typeof frame === "string" ? frame.length : 0;
      try {
        await this.#outbox.drained();
        await this.#work.spend(UNITS_PER_FRAME);
        if (typeof frame !== "string") throw frame;
        await this.#take(frame);
      } catch (error) {
        this.#outbox.send(errorFrame(this.#shown(error)));
      }
      this.#giveBack();
    }
    this.#isReading = false;
  }

  /** Takes a frame of text. Throws errors that belong to no lane. */
  async #take(text: string): Promise<void> {
    const { maxRequestBytes } = this.#options.config;
    const bytes = encoder.encode(text);
    if (bytes.length > maxRequestBytes) throw bodyTooLarge(maxRequestBytes);
    const frame = readFrame(await parseBody(bytes, this.#options.tenant));
    if (this.#isClosed) return;
    switch (frame.kind) {
      case "create":
        await this.#work.spend(UNITS_PER_CREATE);
        return this.#isClosed ? undefined : this.#queue(frame.lane, frame.body, text);
      case "steer":
      case "inject":
        return this.#steering.take(frame.kind, frame.event, frame.response, text.length);
      case "processed":
        return;
    }
  }

  /** Queues a create in its lane. A waiting create is kept as text. */
  #queue(lane: string | undefined, body: JsonObject, text: string): void {
    let parsed: JsonObject | undefined = body;
    try {
      const isNow = this.#lanes.add(lane, text.length, () => this.#create(lane, parsed ?? bodyOf(text), text.length));
      if (!isNow) parsed = undefined;
    } catch (error) {
      const shown = this.#shown(error);
      const say = () => this.#outbox.send(errorFrame(shown, lane));
      if (shown.status !== 429) say();
      else if (!this.#lanes.refuse(lane, say)) this.#end(tooMuch("requests at once"), POLICY_VIOLATION, lane);
    }
  }

  /**
   * Creates a response, and after its end the responses that answer the messages which steered it. `bodyLength`: of its
   * frame. Never rejects.
   */
  async #create(lane: string | undefined, fields: JsonObject, bodyLength: number): Promise<void> {
    const waiting = this.#steering.waitingFor(lane, fields.previous_response_id);
    let words = await this.#respond(lane, fields, { bodyLength, words: waiting });
    while (words && !this.#isClosed) {
      // It has the settings of the one that it continues.
      const { input: _, ...settings } = fields;
      const continued = { ...settings, previous_response_id: words.id };
      words = await this.#respond(lane, continued, { bodyLength, words, isAutomatic: true });
    }
  }

  /**
   * Creates a response and waits for its end. `words` are messages that steered an earlier response: they come before
   * the input. If this server begins the response itself (`isAutomatic`) and it is refused, the messages wait again.
   * Gives the messages that steered this response, for the next one. Never rejects.
   */
  async #respond(
    lane: string | undefined,
    fields: JsonObject,
    { bodyLength, words, isAutomatic }: { bodyLength: number; words: QueuedWords | undefined; isAutomatic?: true },
  ): Promise<QueuedWords | undefined> {
    const { previous_response_id: previous } = fields;
    const abort = new AbortController();
    this.#aborts.add(abort);
    let id = "";
    let caller: Caller | undefined;
    let uncommitted = words;
    try {
      if (processState.isEnding) throw serverIsStopping();
      caller = await this.#caller(abort.signal, lane);
      if (!caller) return undefined;
      this.#giveBack();
      const asked = { ...caller, bodyLength: bodyLength + lengthOfWords(words) };
      const created = await countedWork(asked, "requests", async () => {
        const said = words?.steers.flatMap(({ messages }) => messages);
        const body = readCreate(said ? { ...fields, input: withMessages(said, fields.input) } : fields);
        const continuation = this.#kept.continuation(lane, previous, asked.past);
        if (continuation.isUnstored && (body.store ?? true) === true) throw parentIsNotStored();
        const steering = new Steering();
        return await createResponse({ ...asked, past: continuation, keep: continuation.keep }, body, {
          turnState: this.#options.turnState,
          steering,
          openSink: (_, responseId) => {
            id = responseId;
            this.#steering.begin(id, { lane, steering, maySteer: maySteer(body) });
            return new LaneSink(this.#outbox, lane, this.#options);
          },
        });
      });
      // A stream in the foreground without an idempotency key gives events.
      if (created.kind !== "events") throw new TypeError(`Unexpected ${created.kind}.`);
      if (words) this.#steering.commit(words);
      uncommitted = undefined;
      const result = await created.ended;
      if (result.outcome.status === "failed") this.#evictParent(lane, previous, result.outcome.error);
      return this.#steering.end(id, result);
    } catch (error) {
      const shown = this.#shown(error);
      this.#evictParent(lane, previous, shown);
      caller?.observation?.answered(shown.status, shown);
      if (uncommitted) this.#steering.fail(uncommitted, "successor_creation_failed", shown.message);
      if (!isAutomatic) this.#outbox.send(errorFrame(shown, lane));
      return undefined;
    } finally {
      this.#aborts.delete(abort);
      this.#steering.end(id);
      if (clientsAreToLeave()) this.#retire();
    }
  }

  /** The caller. Undefined if the key is no longer valid, which ends the connection. */
  async #caller(signal: AbortSignal, lane: string | undefined): Promise<Caller | undefined> {
    try {
      return await this.#options.caller(signal);
    } catch (error) {
      const { status } = this.#shown(error);
      // Keys that cannot be looked up now may be valid.
      if (status === 503) throw error;
      this.#end(this.#shown(error), POLICY_VIOLATION, lane);
      return undefined;
    }
  }

  /** Drops the parent of a continuation that failed, unless the failure was temporary. */
  #evictParent(lane: string | undefined, previous: unknown, { status }: ApiError): void {
    if (status !== 429) this.#kept.evict(lane, previous);
  }

  #shown(error: unknown): ApiError {
    return this.#options.shown(error, this.#isClosed);
  }
}

function lengthOfWords(words: QueuedWords | undefined): number {
  return words?.steers.reduce((sum, { length }) => sum + length, 0) ?? 0;
}

/** The length of a frame as the socket gives it. workerd gives binary frames as Blobs. */
function lengthOf(data: unknown): number {
  return typeof data === "string" ? data.length : data instanceof Blob ? data.size : 0;
}

/** The body of a create whose frame was checked before. */
function bodyOf(text: string): JsonObject {
  const frame = readFrame(parseJson(text));
  return frame.kind === "create" ? frame.body : {};
}

function notText(): ApiError {
  return invalidRequest(null, "Binary frames are not supported. Send JSON as text.", "invalid_type");
}

function tooMuch(what: string): ApiError {
  return tooManyInProgress(`The connection is closed, because it has sent too many ${what}.`);
}

function parentIsNotStored(): ApiError {
  return invalidRequest(
    "store",
    "A response that continues one with 'store: false' cannot be stored, because its history is not. Send 'store: false'.",
  );
}

function tooManyConnections(limit: number): ApiError {
  return tooManyInProgress(`You already have ${limit} WebSocket connections. Close one, or send requests over HTTP.`);
}

function lifetimeOver(ms: number): ApiError {
  return new ApiError({
    status: 400,
    message: `A connection lives for ${Math.round(ms / 60_000)} minutes. Open another one.`,
    code: "websocket_connection_limit_reached",
  });
}
