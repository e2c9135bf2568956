import { randomUUID } from "node:crypto";
import { isOnlyPrepared } from "@responses-edge/responses-api/create-bodies";
import { ApiError, clientLeft } from "@responses-edge/responses-api/errors";
import { responseId, type TurnName } from "@responses-edge/responses-api/ids";
import { isKept } from "@responses-edge/responses-api/items/registry";
import { accessOf } from "@responses-edge/responses-api/tools";
import { addItemIds } from "@responses-edge/turn/prompt";
import type { Steering } from "@responses-edge/turn/steering";
import type { Settle } from "@responses-edge/turn/turn";
import { assembleTurn, type TurnHost, type TurnSpec } from "../assembly/assemble-turn.ts";
import type { AgentRuns } from "../contract/agent-runs.ts";
import { agentRuns } from "../store/home/agent-runs.ts";
import { endUserOf } from "../store/limits/allowances.ts";
import { processState } from "../store/objects/process-state.ts";
import { MAX_CALL_LENGTH, maxOutputLength } from "../store/objects/rpc.ts";
import { IS_SERVED } from "../store/objects/workers.ts";
import { containerFiles } from "../store/tenant/files/container-files.ts";
import { searchStores } from "../store/tenant/vector-stores/store-searcher.ts";
import { tellContent } from "../telemetry/content-log.ts";
import { diagnoseCache } from "./cache-diagnosis.ts";
import {
  acceptCreate,
  type Creation,
  inQueue,
  type PreparedTurn,
  prepareTurn,
  type ReadHistory,
  saidTurn,
} from "./creation.ts";
import { addTurn, isEndedByOperator } from "./live-turns.ts";
import { noteHome } from "./policy.ts";
import { RequestScope } from "./request-scope.ts";
import { createdInclude, retrieveResponse } from "./responses.ts";
import { answerRun, createOnce, startRun } from "./runs.ts";
import type { Caller, ClientSink, Created, SlowAnswer } from "./transport.ts";

export interface CreateOptions<Sink extends ClientSink> {
  idempotencyKey?: string | undefined;
  /** Makes the address of a foreground turn. If a turn was stored under the same name, its response is the result. */
  name?: TurnName | undefined;
  /** The session id that an earlier answer gave the client to send again. Requests with the same id share a prefix. */
  turnState?: string | undefined;
  /**
   * Makes the sink for the events of a foreground turn with `stream`; `id` is the response's. The transport calls
   * `onLeft` when nobody reads the events any more. Every sink that was made is ended or abandoned.
   */
  openSink: (onLeft: () => void, id: string) => Sink;
  /** Keeps the client of a foreground turn without `stream` while the model answers. */
  slowAnswer?: SlowAnswer | undefined;
  /** Ends a foreground turn when its user sends another message. */
  steering?: Steering | undefined;
}

/**
 * Creates a response. `body` is the request's, as parsed JSON. A foreground turn runs here, and stops with its client;
 * a background run, or one with an idempotency key, lives in its home. Throws the ApiErrors of a request that is
 * refused before its turn has begun. A request that neither streams nor runs in the background also throws the failure
 * of its turn, unless `slowAnswer` has begun.
 */
export async function createResponse<Sink extends ClientSink>(
  caller: Caller,
  body: unknown,
  { idempotencyKey, name, turnState, ...foreground }: CreateOptions<Sink>,
): Promise<Created<Sink>> {
  using scope = RequestScope.open(caller);
  const kind = idempotencyKey === undefined ? undefined : "run";
  const creation = await acceptCreate(scope, caller, body, { turnState, kind, name });
  if (idempotencyKey !== undefined) return await createOnce(creation, idempotencyKey, body);
  if (creation.request.background) return await answerRun(creation, await startRun(creation));
  return await runForeground(creation, foreground);
}

/** A foreground turn: it runs in this process, and stops when its client disconnects. */

/**
 * Milliseconds that the model generates before the home of a first turn is woken. Making an object takes as long as
 * several tokens: the delay keeps that work away from the first tokens, and avoids it for short answers.
 */
const WAKE_AFTER_MS = 25;

/** How often a turn without a stream looks whether its client has closed the connection. Milliseconds. */
const PEER_CHECK_MS = 1_000;

/**
 * Calls `onLeft` when the launcher has seen a client close its connection: no write shows that before the answer. Gives
 * the timer, which belongs to the request: only its own code may end what it has begun.
 */
function watchPeer({ peer }: Caller, onLeft: () => void): ReturnType<typeof setInterval> | undefined {
  // Only a launcher sees connections.
  if (!IS_SERVED || !peer) return undefined;
  // An older list may name an earlier connection of the same address and port.
  const { measures: older } = processState;
  return setInterval(() => {
    const { measures } = processState;
    if (measures !== older && measures.closedPeers?.includes(peer() ?? "")) onLeft();
  }, PEER_CHECK_MS);
}

/** Microseconds that making a turn and its prompt takes for each item, about. */
const UNITS_PER_ITEM = 1;

/**
 * Runs the turn to its end or, with `stream`, until its events go to the sink. Calls `openSink` when the turn is about
 * to be made; the transport calls `onLeft` when nobody reads the events any more. A request with `generate: false` is
 * checked and settled without asking the model. Throws the ApiErrors of a turn that is refused before it has begun (503
 * without memory permits), and, without a stream, the failure of the turn.
 */
async function runForeground<Sink extends ClientSink>(
  creation: Creation,
  { openSink, slowAnswer, steering }: Pick<CreateOptions<Sink>, "openSink" | "slowAnswer" | "steering">,
): Promise<Created<Sink>> {
  const { caller, request, address, isNewHome, createdAt, conversation, abort, modelAccess, scope } = creation;
  const { config, homes, waitUntil, onAttempt, observation } = caller;
  const { measured } = creation;
  const generates = !isOnlyPrepared(request);
  const entered = conversation && (await enterConversation(creation, conversation.id));
  const onLeft = () => abort.abort(clientLeft());
  // Reading files may take long, and paid work of a model (OCR).
  const reading = creation.isText ? undefined : watchPeer(caller, onLeft);
  const prepared = await prepareTurn(creation, entered).finally(() => clearInterval(reading));
  const keeping = await keepTurn(creation, prepared, entered?.token, slowAnswer);
  const id = responseId(address);
  using unread = new DisposableStack();
  const sink = request.stream ? openSink(onLeft, id) : undefined;
  if (sink) unread.defer(() => waitUntil(sink.abandon()));
  keeping.sink = sink;
  const host: TurnHost = {
    config,
    modelAccess,
    access: request.tools ? accessOf(request) : {},
    containerFiles: () => containerFiles(caller),
    searchStores: (ids, query, signal) => searchStores({ ...caller, signal }, ids, query),
    agents: (own) => agentsOf(creation, own, prepared),
    outputLength: keeping.outputLength,
    signal: abort.signal,
    waitUntil,
    sink,
    steering,
    onAttempt,
    measured,
    diagnosis: generates ? diagnoseCache(creation, prepared.spec, prepared.past) : undefined,
  };
  let { spec } = prepared;
  let turn = assembleTurn(spec, prepared.past, host);
  let started = generates ? turn.start() : Promise.resolve();
  // A refusal that comes at once is thrown. A stream begins within one heartbeat interval; a later refusal is an event
  // in it.
  const late = Promise.withResolvers<void>();
  const timer = sink && setTimeout(late.resolve, config.heartbeatMs);
  try {
    let refusal: unknown;
    for (;;) {
      try {
        await (sink ? Promise.race([started, late.promise]) : started);
        break;
      } catch (error) {
        refusal ??= error;
        const model = error instanceof ApiError ? await modelAccess.replaceModel(error, abort.signal) : undefined;
        if (!model) throw refusal;
        spec = { ...spec, model, request: modelAccess.accept(request, model) };
        turn = assembleTurn(spec, prepared.past, host);
        started = turn.start();
      }
    }
  } finally {
    clearTimeout(timer);
  }
  if (spec.model.upstream !== (request.model ?? spec.model.upstream)) caller.tell?.({ "x-model": spec.model.upstream });
  if (!sink) slowAnswer?.begin(onLeft);
  const running = generates ? turn.run(started, keeping.settle) : turn.warmUp(keeping.settle);
  // Other homes exist already. A failed answer without a stream stores nothing.
  if (generates && sink && isNewHome && request.store !== false) {
    const wake = () => waitUntil(homes.awaitTurn(address.home, createdAt));
    keeping.waking = setTimeout(wake, WAKE_AFTER_MS);
  }
  unread.move();
  // The turn outlives this function.
  const owned = scope.move();
  const server = () => modelAccess.upstream.server.config.name;
  const isStored = request.store !== false;
  const { tenant } = spec;
  const removeTurn = addTurn(id, { tenant, model: spec.model.name, createdAt, isStored, server, abort });
  const watch = sink ? undefined : watchPeer(caller, onLeft);
  const ended = running.then((result) => {
    owned.end(result);
    removeTurn();
    clearInterval(watch);
    const { policy } = caller.identity;
    if (policy?.logsContent) tellContent(config, policy, saidTurn(creation, result), { waitUntil, isBrief: false });
    return result;
  });
  if (sink) {
    const hasLeft = () => !isEndedByOperator(abort.signal);
    const said = ended.then(({ outcome }) =>
      outcome.status === "cancelled" && hasLeft() ? sink.abandon() : sink.end(),
    );
    waitUntil(observation ? observation.streamsUntil(said) : said);
    return { kind: "events", sink, ended };
  }
  // Lets the settlement finish when the client leaves.
  waitUntil(observation && slowAnswer ? observation.streamsUntil(ended) : ended);
  const { outcome, closed } = await ended;
  if (outcome.status === "failed" && !slowAnswer?.hasBegun) throw outcome.error;
  if (keeping.isKnown) {
    return { kind: "response", response: await retrieveResponse(caller, address, createdInclude(request)) };
  }
  return { kind: "response", response: closed };
}

/** The runs of the sub-agents of a foreground turn. */
function agentsOf(creation: Creation, spec: TurnSpec, { past }: PreparedTurn): AgentRuns {
  const { caller, request, previous, owner, address } = creation;
  const { config, homes, quotas, waitUntil, identity } = caller;
  const { policy, keyId, counted, endUser: limits } = identity;
  const endUser = endUserOf(identity, request);
  const access = accessOf(request);
  // A WebSocket may have the history of an unstored response.
  const context =
    request.store === false
      ? { parent: null, input: [...past.history, ...past.input] }
      : { parent: previous?.turn ?? null, input: past.input };
  return agentRuns(
    {
      ...{ spec, ...context, access, keyId },
      ...(policy && { policy }),
      ...(owner !== undefined && { owner }),
      limits: counted && { limits: counted, ...(endUser && limits && { endUser: { ...endUser, limits } }) },
    },
    { config, homes, quotas, waitUntil, prepare: async () => noteHome(caller, address.home) },
  );
}

/**
 * Waits for the conversation, which no other turn enters until the scope ends. Gives its history, and the token of the lease under
 * which the turn is settled. Throws the 404 of a conversation that does not exist, and the 409 and 429 of one that is in use.
 */
async function enterConversation(creation: Creation, id: string): Promise<ReadHistory & { token: string }> {
  const { caller, address, scope } = creation;
  const { homes, config } = caller;
  const token = randomUUID();
  const enter = () => homes.enterConversation({ id, home: address.home }, token, config.conversationLockWaitMs);
  const entered = await inQueue(creation, token, enter);
  scope.enter(entered);
  return { ...entered.history, token };
}

interface Keeping {
  /** The most output tokens of the turn. */
  outputLength: number;
  /** Wakes the home after `WAKE_AFTER_MS`, unless the turn is settled earlier. */
  waking: ReturnType<typeof setTimeout> | undefined;
  /** True if the turn was already stored, by an attempt whose end nobody learned. */
  isKnown: boolean;
  /** Takes the turn's events, where they are streamed. */
  sink: ClientSink | undefined;
  settle: Settle;
}

/** Milliseconds to wait for a client that does not read. */
const TAKEN_WITHIN_MS = 25;

/**
 * Waits until the client has read everything sent so far. Without the wait, the work of a settlement would run before
 * the pending writes.
 */
async function untilTaken(sink: ClientSink | undefined): Promise<void> {
  const taken = sink?.flushed?.();
  if (!taken) return;
  const late = Promise.withResolvers<void>();
  const timer = setTimeout(late.resolve, TAKEN_WITHIN_MS);
  await Promise.race([taken, late.promise]);
  clearTimeout(timer);
}

/**
 * How a turn is stored: in its home, in its conversation, by its transport, or not at all. `token` names the lease of a
 * conversation. Throws the 400 of a request that leaves too few bytes for its answer.
 */
async function keepTurn(
  creation: Creation,
  { spec, past, work }: PreparedTurn,
  token: string | undefined,
  slowAnswer: SlowAnswer | undefined,
): Promise<Keeping> {
  const { caller, request, previous, address, owner, createdAt, measured } = creation;
  const { homes } = caller;
  const inConversation = token !== undefined;
  const isStored = request.store !== false || inConversation;
  const named = isStored || caller.keep ? await work.run(addItemIds(past.input, address, creation.renamesItems)) : [];
  let outputLength = MAX_CALL_LENGTH;
  if (isStored) {
    const { input: _input, ...fields } = spec.request;
    outputLength = maxOutputLength(JSON.stringify(named).length + JSON.stringify(fields).length);
  }
  // Pays for making the turn and its prompt, which follows.
  await work.spend((past.history.length + past.input.length) * UNITS_PER_ITEM);
  // The home is noted before anything is stored there, while the model generates.
  const noted = isStored && caller.identity.policy?.tracksHomes ? noteHome(caller, address.home) : undefined;
  noted?.catch(() => {});
  const keeping: Keeping = {
    outputLength,
    waking: undefined,
    isKnown: false,
    sink: undefined,
    async settle({ outcome: { status }, closed }, terminate) {
      clearTimeout(keeping.waking);
      // A thrown failure has no response: the client never learns an id, so none is recorded.
      const isTold = request.stream === true || slowAnswer?.hasBegun === true;
      const keep = request.store !== false && (status !== "failed" || isTold);
      const isWhole = status === "completed" || status === "incomplete";
      const joins = inConversation && isWhole;
      const { kept: output, messages } = closed;
      if (keep || joins) {
        await untilTaken(keeping.sink);
        await noted;
        const rows = await homes.settle(address.home, {
          turn: address.turn,
          parent: previous?.turn ?? null,
          createdAt,
          input: JSON.stringify(named.filter(isKept)),
          output,
          messages,
          // A turn with `store: false` leaves its items in its conversation, and no response.
          response: keep ? closed.head : null,
          timing: keep ? closed.keptTiming() : null,
          owner,
          lease: token === undefined ? null : { token, joins },
        });
        measured.rowsWritten = rows;
        keeping.isKnown = creation.isNamed && keep && rows === 0;
      } else if (isWhole) caller.keep?.({ address, input: JSON.stringify(named.filter(isKept)), output, messages });
      terminate();
    },
  };
  return keeping;
}
