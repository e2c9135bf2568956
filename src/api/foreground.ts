import { randomUUID } from "node:crypto";
import { assembleTurn } from "../assembly/assemble-turn.ts";
import { acceptRequest, resolveModel } from "../assembly/model-server.ts";
import type { Replay } from "../contract/engine.ts";
import { accessOf } from "../contract/mcp-access.ts";
import type { Item } from "../items/registry.ts";
import { isOnlyPrepared } from "../protocol/create-request.ts";
import { clientLeft } from "../protocol/errors.ts";
import { responseId } from "../protocol/ids.ts";
import { LongWork } from "../protocol/long-work.ts";
import { readHistory } from "../store/history.ts";
import { MAX_CALL_LENGTH, outputRoom } from "../store/limits.ts";
import { addItemIds, keptInput, matchOutputs, needsItemIds } from "../turn/history.ts";
import type { Settle, Turn, TurnResult } from "../turn/turn.ts";
import { storingKey } from "./admission.ts";
import { inQueue } from "./client-left.ts";
import type { Creation } from "./creation.ts";
import { noteHome } from "./noted-homes.ts";
import type { Caller, ClientSink, Created, SlowAnswer } from "./transport.ts";

/** A foreground turn: it runs in this process, beside its client, and stops with it. */

/**
 * How long the model speaks before the home of a first turn is woken, in milliseconds. Making an object takes as long as
 * several tokens: it delays neither the first of them, nor an answer that is over by then.
 */
const WAKE_AFTER_MS = 25;

/** A conversation that the turn has entered: it is the only one there until it releases it. */
interface EnteredConversation {
  /** The conversation's items before the turn, and the raw messages behind them. */
  history: Item[];
  replays: Replay[];
  /** Of them, as JSON, in UTF-16 units. */
  length: number;
  /** Names the lease under which the turn may be settled. */
  token: string;
  release(): void;
}

/**
 * Runs the turn: to its end, or, with `stream`, until its events go to the sink. `openSink` is called when the
 * turn is about to be made; its `onLeft` is to be called when nobody reads the events any more. A request that
 * is only prepared (`generate: false`) is checked and settled, and the model is asked nothing.
 * Throws ApiError for all that refuses the turn before it has begun (503 where this isolate has enough of them), and, without
 * a stream, for a turn that fails.
 */
export async function runForeground<Sink extends ClientSink>(
  creation: Creation,
  openSink: (onLeft: () => void, id: string) => Sink,
  slowAnswer?: SlowAnswer,
): Promise<Created<Sink>> {
  const { caller, request, address, conversation, abort, admission, permits } = creation;
  const generates = !isOnlyPrepared(request);
  let entered: EnteredConversation | undefined;
  let sink: Sink | undefined;
  let isRunning = false;
  try {
    entered = conversation && (await enterConversation(creation, conversation.id));
    const prepared = await prepare(creation, entered, slowAnswer);
    sink = request.stream ? openSink(() => abort.abort(clientLeft()), responseId(address)) : undefined;
    const turn = prepared.makeTurn(sink);
    const started = generates ? turn.start() : Promise.resolve();
    // What the model server refuses at once is thrown. When it takes longer than a client should be left without a
    // word, the stream begins, and a later refusal is an event in it.
    if (sink) await settledWithin(started, caller.config.heartbeatMs);
    else {
      await started;
      slowAnswer?.begin(() => abort.abort(clientLeft()));
    }
    const running = generates ? turn.run(started, prepared.settle) : turn.warmUp(prepared.settle);
    if (generates) prepared.wakeHome();
    const ended = running.then((result) => {
      entered?.release();
      permits[Symbol.dispose]();
      admission.end(result);
      return result;
    });
    isRunning = true;
    return sink ? stream(caller, ended, sink) : await answer(caller, ended, slowAnswer);
  } finally {
    if (!isRunning) {
      permits[Symbol.dispose]();
      entered?.release();
      admission.end();
      if (sink) caller.waitUntil(sink.abandon());
    }
  }
}

async function answer(
  { waitUntil, observation }: Caller,
  ended: Promise<TurnResult>,
  slowAnswer: SlowAnswer | undefined,
): Promise<Created<never>> {
  // Lets the settlement finish when the client leaves.
  waitUntil(observation && slowAnswer ? observation.streamsUntil(ended) : ended);
  const { outcome, closed } = await ended;
  if (outcome.status === "failed" && !slowAnswer?.hasBegun) throw outcome.error;
  return { kind: "response", response: closed };
}

function stream<Sink extends ClientSink>(
  { waitUntil, observation }: Caller,
  ended: Promise<TurnResult>,
  sink: Sink,
): Created<Sink> {
  const said = ended.then(({ outcome }) => (outcome.status === "cancelled" ? sink.abandon() : sink.end()));
  waitUntil(observation ? observation.streamsUntil(said) : said);
  return { kind: "events", sink, ended };
}

/** Waits for the conversation. Throws the 404 of one that is not there, and the 409 and 429 of one that is not free. */
async function enterConversation(creation: Creation, id: string): Promise<EnteredConversation> {
  const { caller, address } = creation;
  const { homes, config } = caller;
  const token = randomUUID();
  const place = { id, home: address.home };
  const enter = () => homes.enterConversation(place, token, config.conversationLockWaitMs);
  const { history, release } = await inQueue(creation, token, enter);
  return { ...readHistory(history), token, release };
}

/** To look at all items once takes about so many microseconds for each. */
const UNITS_PER_ITEM = 1;

/** Reads the past and checks the request against its model: what makes the turn, and what settles it. */
async function prepare(
  creation: Creation,
  entered: EnteredConversation | undefined,
  slowAnswer: SlowAnswer | undefined,
): Promise<{ makeTurn(sink: ClientSink | undefined): Turn; wakeHome(): void; settle: Settle }> {
  const {
    caller,
    request,
    input: sent,
    previous,
    address,
    isNewHome,
    cacheSalt,
    affinity,
    createdAt,
    abort,
  } = creation;
  const { config, tenant, homes, waitUntil, onAttempt, observation } = caller;
  const inConversation = entered !== undefined;
  const [model, past] = await Promise.all([
    resolveModel(request.model, config, abort.signal),
    caller.past.past(sent, previous),
  ]);
  const work = new LongWork(tenant);
  // What is to be done next: to look at all items.
  await work.spend(past.input.length * UNITS_PER_ITEM);
  const accepted = acceptRequest(request, model, config);
  creation.permits.resize(caller.bodyLength + past.length + (entered?.length ?? 0));
  const { history, replays } = entered ?? past;
  const matched = [...matchOutputs(history, past.input)];
  const { expect } = creation.admission;
  if (expect && history.length > 0) await expect([...history, ...matched]);
  const withIds = (items: readonly Item[]) => work.run(addItemIds(items, address, inConversation));
  const input = needsItemIds(request, matched) ? await withIds(matched) : matched;
  const isKept = request.store !== false || inConversation;
  const room = isKept ? outputRoom(accepted, await withIds(input)) : MAX_CALL_LENGTH;
  // What is to be done next: to make the turn, and its prompt.
  await work.spend((history.length + input.length) * UNITS_PER_ITEM);
  const makeTurn = (sink: ClientSink | undefined): Turn =>
    assembleTurn(
      { ...address, request: accepted, model, tenant, cacheSalt, affinity, createdAt },
      { history, replays, input },
      {
        config,
        access: accessOf(accepted),
        room,
        signal: abort.signal,
        waitUntil,
        sink,
        onAttempt,
        measured: observation?.measured,
      },
    );
  // Known before anything is kept there; while the model speaks.
  const noted = isKept ? noteHome(caller, address.home) : undefined;
  noted?.catch(() => {});
  const owner = storingKey(caller.identity);
  let waking: ReturnType<typeof setTimeout> | undefined;
  const wakeHome = () => {
    // Any other home is there. An answer without a stream that fails leaves nothing.
    if (request.store === false || !request.stream || !isNewHome) return;
    waking = setTimeout(() => waitUntil(homes.awaitTurn(address.home, createdAt, owner !== undefined)), WAKE_AFTER_MS);
  };
  const settle: Settle = async ({ outcome, closed }, terminate) => {
    clearTimeout(waking);
    const { status } = outcome;
    // A failure that is thrown has no response: nobody learns the id that a record of it would have.
    const isTold = request.stream === true || slowAnswer?.hasBegun === true;
    const keep = request.store !== false && (status !== "failed" || isTold);
    const isWhole = status === "completed" || status === "incomplete";
    const joins = inConversation && isWhole;
    const { kept: output, messages } = closed;
    const items = async () => JSON.stringify(await withIds(keptInput(input)));
    if (keep || joins) {
      await noted;
      const rows = await homes.settle(address.home, {
        turn: address.turn,
        parent: previous?.turn ?? null,
        createdAt,
        input: await items(),
        output,
        messages,
        // A turn that is not to be stored leaves its items in its conversation, and no response.
        response: keep ? closed.head : null,
        owner,
        lease: entered ? { token: entered.token, joins } : null,
      });
      if (observation) observation.measured.rowsWritten = rows;
    } else if (isWhole) caller.keep?.({ address, input: await items(), output, messages });
    terminate();
  };
  return { makeTurn, wakeHome, settle };
}

/** Waits for a promise, at most `ms`; rejects if it rejects in that time. */
async function settledWithin(promise: Promise<unknown>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  try {
    await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
