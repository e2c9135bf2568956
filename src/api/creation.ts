import { LongWork } from "@responses-edge/bounded-io/long-work";
import { type CreateRequest, createRequest, readCreateBody } from "@responses-edge/responses-api/create-bodies";
import { clientLeft, previousResponseNotFound } from "@responses-edge/responses-api/errors";
import {
  namedTree,
  namedTurnAddress,
  newTurnAddress,
  parseResponseId,
  responseId,
  type TreeAddress,
  type TurnAddress,
  type TurnName,
} from "@responses-edge/responses-api/ids";
import { type InputItem, isTextOnly } from "@responses-edge/responses-api/items/registry";
import { type Measurements, newMeasurements, untilEntered } from "@responses-edge/turn/contract/measurements";
import { addItemIds, matchOutputs, needsItemIds } from "@responses-edge/turn/prompt";
import type { z } from "zod";
import { type Affinity, affinityOf, tenantCacheSalt } from "../assembly/affinity.ts";
import type { Past, ReadPast, TurnSpec } from "../assembly/assemble-turn.ts";
import { senderOf } from "../assembly/flow.ts";
import { checkRequestItems } from "../assembly/media-policy.ts";
import { ModelAccess } from "../assembly/model-access.ts";
import type { Config } from "../config/index.ts";
import type { GivenFile } from "../contract/container-files.ts";
import type { Identity } from "../contract/grants.ts";
import { conversationAddress, knownTree, type NewTree, newTree } from "../store/home/home-client.ts";
import { fullShares } from "../store/limits/disk-share.ts";
import { insufficientStorage, processState } from "../store/objects/process-state.ts";
import type { SaidTurn } from "../telemetry/content-log.ts";
import { filesOfTools } from "./container-references.ts";
import { readInputFiles } from "./input-files.ts";
import { type AdmissionKind, admit, checkShare } from "./limit-reservation.ts";
import { withLiveTurn } from "./live-turns.ts";
import { checkModeration } from "./moderations.ts";
import { allowedModel, checkCap, checkUnstored, notOpen, priorityOf } from "./policy.ts";
import type { RequestScope } from "./request-scope.ts";
import type { Caller } from "./transport.ts";

/** A response that is to be created: the steps that all ways of creating one share. */

/** The longest body of a tree that shares its home with other trees. A longer one would leave them little. Bytes, or UTF-16 units. */
const MAX_SHARED_LENGTH = 256 * 1024;

/** A checked request, with all that is known before a home or a model server is asked. */
export interface Creation {
  caller: Caller;
  request: CreateRequest;
  /** The request's own input, references not resolved. */
  input: InputItem[];
  /** Tells whether the input is messages with text only. */
  isText: boolean;
  /**
   * The items of the input get new ids: those of a conversation do, and where the operator blocks flagged input, because ids tell a
   * model's output from what clients have sent.
   */
  renamesItems: boolean;
  /** The turn that the new one continues. */
  previous: TurnAddress | null;
  conversation: { id: string; address: TurnAddress } | undefined;
  /** The new turn's own address. */
  address: TurnAddress;
  /** The address follows from a name, so that the turn may be stored already. */
  isNamed: boolean;
  /** No other turn is in its home yet. */
  isNewHome: boolean;
  /** The key that the stored bytes are counted for, where they are counted. */
  owner: string | undefined;
  cacheSalt: string;
  /** Identifies the other turns that share a model server's cache with this one. */
  affinity: Affinity;
  /** The files that the request gives to its container. */
  givenFiles: readonly GivenFile[] | undefined;
  /** Unix milliseconds. */
  createdAt: number;
  /**
   * Aborted, with the 499 that says so, when the client leaves before its response has ended. The transport aborts it by the
   * caller's signal, or by the sink's `onLeft` when a write fails. The turn then closes its request to vLLM at once and ends as
   * cancelled; a turn that still waits for its conversation leaves the queue. A run in its home goes on.
   */
  abort: AbortController;
  /** Those of telemetry where there is any. */
  measured: Measurements;
  modelAccess: ModelAccess;
  /** The function that opened it gives back all that the request has taken, unless another scope took it over (`move`). */
  scope: RequestScope;
}

export interface CreationOptions {
  /** The schema that reads another request as a create. */
  schema?: z.ZodType<CreateRequest>;
  /** The session id that an earlier answer gave the client to send again. */
  turnState?: string | undefined;
  /** False: no turn is made, so no later request can continue it. */
  makesTurn?: boolean;
  /** How the request is admitted. The request itself decides by default. */
  kind?: AdmissionKind | undefined;
  /** Makes the turn's address. */
  name?: TurnName | undefined;
  /** The tree that the turn is added to, where its input does not say so. */
  tree?: TreeAddress;
  /** How often the model is asked, at about the same length; by default once. */
  prompts?: number;
}

/**
 * Checks the body of a create, or of another request that `schema` turns into one, step by step: its schema, the rules of the
 * operator and of the caller's key, its references, the address of its turn, and the caller's limits. No step repeats an earlier
 * check. Throws the 400s, 403s and 404s that are known without asking a home or a model server, the 507 of a full disk, and the
 * 429s and the 503 of the caller's limits. With several model servers it also throws the errors of listing their models.
 */
export async function acceptCreate(
  scope: RequestScope,
  caller: Caller,
  sent: unknown,
  { schema = createRequest, turnState, makesTurn = true, kind, name, tree, prompts = 1 }: CreationOptions = {},
): Promise<Creation> {
  const { config, tenant, identity, signal } = caller;
  const { dropsUnknownTools, vllmExtraFields } = config;
  const reading = { schema, dropsUnknownTools, absentTools: config.tools.absent, vllmExtraFields, tenant };
  const body = await readCreateBody(sent, reading);
  const { input, isText, dropped } = body;
  if (makesTurn && dropped.length > 0) tellDroppedTools(caller, dropped);
  // An object: its fields were read.
  const given = sent as Readonly<Record<string, unknown>>;
  for (const [field, variable] of config.closedFields) if (given[field] != null) throw notOpen(field, variable);
  const request = underPolicy(body.request, identity, config);
  caller.observation?.know({ model: request.model ?? undefined });
  if (request.moderation != null) checkModeration(request, config);
  const conversation =
    body.conversation === undefined
      ? undefined
      : { id: body.conversation, address: conversationAddress(body.conversation) };
  // Runs and the items of a conversation are always stored.
  const isStored = request.store !== false || request.background || conversation !== undefined || kind === "run";
  if (makesTurn && isStored) {
    if (processState.isDiskClosed) throw insufficientStorage();
    if (fullShares.has(tenant)) await checkShare(caller);
  }
  const [givenFiles] = await Promise.all([
    request.tools ? filesOfTools(caller, request.tools) : undefined,
    !isText && checkRequestItems(input, "input", caller, signal),
  ]);
  const { previous_response_id: continued } = request;
  const previous = continued == null ? null : (parseResponseId(continued) ?? null);
  if (continued != null && !previous) throw previousResponseNotFound(continued);
  const abort = new AbortController();
  signal.addEventListener("abort", () => abort.abort(clientLeft()), { once: true });
  const modelAccess = new ModelAccess(config, tenant);
  const isNew = isText && !previous && !conversation;
  const isShared = makesTurn && request.store !== false && caller.bodyLength <= MAX_SHARED_LENGTH;
  const treesPerHome = isShared ? config.treesPerHome : 1;
  const continuedTree = tree ?? (isNew ? undefined : knownTree(input, previous, conversation?.address));
  const cacheSalt = tenantCacheSalt(tenant, request.cache_salt);
  const hasPool = config.modelServers.length > 1 || (config.routes.size > 0 && isSplit(config, request.model));
  const affinity = affinityOf({
    request,
    input,
    continues: continuedTree !== undefined,
    isKept: makesTurn && (request.store !== false || caller.keep !== undefined),
    clientSession: caller.clientSession ?? turnState,
    hasPool,
  });
  const known = continuedTree ?? (name && namedTree(name, treesPerHome));
  let place: NewTree;
  if (known) {
    modelAccess.inTree(known);
    place = { ...known, isFirst: false };
  } else {
    const draw = newTree(tenant, treesPerHome);
    place = hasPool ? await modelAccess.placedTree({ model: request.model, affinity }, draw, abort.signal) : draw();
  }
  const address = name ? namedTurnAddress(name, place) : newTurnAddress(place.home, place.tree);
  const kindOf = kind ?? (request.background ? "run" : "turn");
  scope.admit(await admit(caller, request, input, address, { kind: kindOf, makesTurn, prompts }));
  return {
    caller,
    request,
    input,
    isText,
    renamesItems: conversation !== undefined || config.guard?.input === "block",
    previous,
    conversation,
    address,
    isNamed: name !== undefined,
    isNewHome: place.isFirst,
    owner: identity.storingKey,
    cacheSalt,
    affinity,
    givenFiles,
    createdAt: Date.now(),
    abort,
    measured: caller.observation?.measured ?? newMeasurements(),
    modelAccess,
    scope,
  };
}

/**
 * A request as its key allows it, with the key's model, output limit and priority where the request leaves them out. Throws the
 * 403 of a model that the key does not have, and the 400s of fields that the key or the operator does not allow.
 */
function underPolicy(
  request: CreateRequest,
  { policy }: Identity,
  { priorities }: Pick<Config, "priorities">,
): CreateRequest {
  const hasPriorities = Object.keys(priorities).length > 0;
  const priority = hasPriorities ? priorityOf(request, policy?.tier, priorities) : undefined;
  const prioritised = priority === undefined ? request : { ...request, priority };
  if (!policy) return prioritised;
  const model = allowedModel(request.model, policy.models);
  if (policy.forceStoreFalse) checkUnstored(request);
  const { maxOutputTokens: cap } = policy;
  const { max_output_tokens: wanted } = request;
  checkCap("max_output_tokens", wanted, cap);
  return {
    ...prioritised,
    ...(model !== undefined && { model }),
    ...(cap !== undefined && { max_output_tokens: wanted ?? cap }),
    ...(policy.forceStoreFalse && { store: false }),
  };
}

/** Tells whether a name is routed to several models, each with a share of the conversations. */
function isSplit({ routes }: Caller["config"], name: string | null | undefined): boolean {
  return name != null && (routes.get(name)?.targets.length ?? 1) > 1;
}

/** The most types that a header lists. */
const MAX_TOLD_TYPES = 16;

/** Says which of the request's tools were left out, by their types. */
function tellDroppedTools({ tell }: Caller, types: readonly string[]): void {
  const told = types.filter((type) => /^[\w.-]{1,64}$/.test(type)).slice(0, MAX_TOLD_TYPES);
  if (told.length > 0) tell?.({ "x-dropped-tools": told.join(", ") });
}

/** Microseconds that looking at all items once takes for each. */
const UNITS_PER_ITEM = 1;

/** The microseconds that a short turn takes, about, with its events. */
const UNITS_PER_TURN = 2_000;

/** A turn that is ready to be assembled. */
export interface PreparedTurn {
  spec: TurnSpec;
  past: Past;
  /** Accounts for the tenant's time on this thread. */
  work: LongWork;
}

/**
 * Reads what a turn continues, and checks the request against its model. `conversation` is the history of the
 * conversation that the turn is in. Throws the 400s of missing references and of features that the model lacks, the 503
 * where there is no model, the 429 and 503 of a history that gets no memory permits, and the 429 of limits.
 */
export async function prepareTurn(
  { caller, request, input: sent, previous, abort, scope, modelAccess, ...creation }: Creation,
  conversation: Promise<ReadHistory | undefined> | ReadHistory | undefined,
): Promise<PreparedTurn> {
  const { tenant, bodyLength } = caller;
  const { address, cacheSalt, affinity, givenFiles, createdAt } = creation;
  const hold = (length: number) => scope.resize(bodyLength + length);
  const files = creation.isText
    ? { items: sent, length: 0 }
    : await readInputFiles(caller, sent, {
        field: "input",
        signal: abort.signal,
        hold,
        sees: () => modelAccess.seesImages(request.model, abort.signal),
      });
  const reads = [
    modelAccess.resolve(request.model, abort.signal),
    caller.past.past(files.items, previous),
    conversation,
  ] as const;
  const [model, read, joined] = await Promise.all(reads).catch(async (error: unknown) => {
    throw await withLiveTurn(error, previous, tenant);
  });
  const work = new LongWork(tenant);
  // Pays for the turn, and for looking at all items, which follows.
  await work.spend(UNITS_PER_TURN + read.input.length * UNITS_PER_ITEM);
  const accepted = modelAccess.accept(request, model);
  const length = read.length + (joined?.length ?? 0) + files.length;
  if (length > 0) scope.resize(bodyLength + length);
  const { history, replays } = joined ?? read;
  const isText = creation.isText || isTextOnly(read.input);
  const matched = isText ? read.input : [...matchOutputs(history, read.input)];
  if (length > 0) await scope.expect(() => [...history, ...matched]);
  // Raw messages that a client has kept are found by the id of the input's first item.
  const needsIds = request.previous_input_messages != null || (!isText && needsItemIds(matched));
  const input = needsIds ? await work.run(addItemIds(matched, address, creation.renamesItems)) : matched;
  const spec = {
    ...address,
    request: accepted,
    model,
    tenant,
    cacheSalt,
    affinity,
    sender: senderOf(caller.identity),
    ...(givenFiles && { givenFiles }),
    createdAt,
  };
  return { spec, past: { history, replays, input }, work };
}

/** A history that was read. */
export type ReadHistory = Omit<ReadPast, "input">;

/** Does work that may have to wait for the new turn's conversation, under `ticket`. */
export async function inQueue<T>(
  { caller, address, abort, conversation, measured }: Creation,
  ticket: string,
  work: () => Promise<T>,
): Promise<T> {
  const leave = () =>
    caller.waitUntil(caller.homes.ask(address.home, undefined, (home) => home.leaveConversation(ticket)));
  abort.signal.addEventListener("abort", leave, { once: true });
  try {
    return await (conversation ? untilEntered(measured, work) : work());
  } finally {
    abort.signal.removeEventListener("abort", leave);
  }
}

/** A turn of this process, for the log of contents. */
export function saidTurn(
  { caller, request, input, address, createdAt }: Creation,
  result: SaidTurn["result"],
): SaidTurn {
  const { tenant, identity } = caller;
  return { id: responseId(address), tenant, keyId: identity.keyId, request, input, createdAt, result };
}
