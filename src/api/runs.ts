import { createHash, randomUUID } from "node:crypto";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { newSpanId } from "@responses-edge/otlp";
import { type CreateRequest, isOnlyPrepared, preparedBy } from "@responses-edge/responses-api/create-bodies";
import {
  ApiError,
  conversationNotFound,
  invalidRequest,
  previousResponseNotFound,
  responseNotFound,
} from "@responses-edge/responses-api/errors";
import { responseId } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { canonicalJson } from "@responses-edge/responses-api/json";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { accessOf, echoTool, withheldLabels } from "@responses-edge/responses-api/tools";
import type { Model } from "@responses-edge/turn/contract/engine";
import { addItemIds } from "@responses-edge/turn/prompt";
import { senderOf } from "../assembly/flow.ts";
import type { Fork, RunSpec } from "../store/home/run-store.ts";
import type { StoredResponse } from "../store/home/stored-response.ts";
import type { Stub } from "../store/objects/objects.ts";
import { maxOutputLength, refused, unwrap } from "../store/objects/rpc.ts";
import { diagnoseCache } from "./cache-diagnosis.ts";
import { type Creation, inQueue } from "./creation.ts";
import { readInputFiles } from "./input-files.ts";
import { withLiveTurn } from "./live-turns.ts";
import { noteHome } from "./policy.ts";
import { createdInclude, shownResponse } from "./responses.ts";
import { followResponse } from "./run-events.ts";
import type { CreatedRun } from "./transport.ts";

/**
 * Runs: turns that live in their home and do not stop with their client. Background responses are runs, and so are
 * requests with an `Idempotency-Key`, which other requests may join.
 */

/** Begins a run in its home, a branch with `fork`, and gives its response in its first state. Throws the errors that refuse the run. */
export async function startRun(creation: Creation, fork?: Fork): Promise<StoredResponse> {
  const { caller, request, abort, address, conversation, owner, cacheSalt, affinity, givenFiles, modelAccess, scope } =
    creation;
  const { config, homes, past, tenant, identity } = caller;
  const files = await readInputFiles(caller, creation.input, {
    field: "input",
    signal: abort.signal,
    hold: (length) => scope.resize(caller.bodyLength + length),
    sees: () => modelAccess.seesImages(request.model, abort.signal),
  });
  const [model, { input }] = await Promise.all([
    modelAccess.resolve(request.model, abort.signal),
    // The home reads the earlier turns by itself.
    past.past(files.items, null),
  ]);
  const accepted = modelAccess.accept(request, model);
  const { input: _sent, ...rest } = accepted;
  const access = accessOf(rest);
  const trace = caller.observation?.runTrace(newSpanId);
  const tools = rest.tools?.map(echoTool);
  const spec: RunSpec = {
    home: address.home,
    turn: address.turn,
    parent: creation.previous?.turn ?? null,
    createdAt: creation.createdAt,
    request: { ...rest, ...(tools && { tools }) },
    input: await new LongWork(tenant).run(addItemIds(input, address, creation.renamesItems)),
    model,
    cacheSalt,
    affinity,
    sender: senderOf(identity),
    ...(givenFiles && { givenFiles }),
    ...(await diagnosed(creation, accepted, model, input)),
    tenant,
    ...(trace && { trace }),
    // Only this process has the secrets that are removed from the stored tools.
    withheld: withheldLabels(tools, access),
    inConversation: conversation !== undefined,
    ...(fork && { fork }),
    ...(identity.policy && { policy: identity.policy }),
    keyId: identity.keyId,
    ...(owner !== undefined && { owner }),
  };
  const { reservation } = scope;
  const specJson = JSON.stringify({ ...spec, ...(reservation && { reservation }) } satisfies RunSpec);
  await noteHome(caller, address.home);
  maxOutputLength(specJson.length + JSON.stringify(access).length);
  const ticket = randomUUID();
  const missing = missingPast(creation);
  const begin = async (home: Stub<"HOME">) =>
    await home.startRun(specJson, ticket, config.conversationLockWaitMs, access);
  const start = () => (missing ? homes.ask(address.home, refused(missing), begin) : begin(homes.home(address.home)));
  // The run takes its own memory permits, and its home ends the reservation.
  const handedOver = scope.move();
  handedOver.releasePermits();
  try {
    return unwrap(await inQueue(creation, ticket, start));
  } catch (error) {
    const fault = await withLiveTurn(homes.notTaken(address.home, error), creation.previous, tenant);
    // The home refuses a run with an ApiError. After any other error the run may have begun.
    if (fault instanceof ApiError) handedOver.end();
    throw fault;
  }
}

/** The comparison with an earlier prompt, if the request asks for one. In a conversation only its home knows what comes before. */
async function diagnosed(creation: Creation, request: CreateRequest, model: Model, input: Item[]) {
  if (request.prompt_cache_options?.comparison_response_id == null) return {};
  const { caller, address, previous, conversation } = creation;
  if (conversation) return { diagnosis: { type: "unavailable" as const } };
  const past = previous ? await caller.past.past([], previous).catch(() => undefined) : NO_PAST;
  const spec = { ...creation, ...address, request, model, tenant: caller.tenant };
  const diagnosis = past && (await diagnoseCache(creation, spec, { ...past, input }));
  return { diagnosis: diagnosis ?? { type: "unavailable" as const } };
}

const NO_PAST = { history: [], replays: [] };

/** The error of a run whose home does not exist, so that the history it continues does not either. Undefined if it continues nothing. */
function missingPast({ conversation, previous }: Creation): ApiError | undefined {
  if (conversation) return conversationNotFound(conversation.id);
  return previous ? previousResponseNotFound(responseId(previous)) : undefined;
}

/**
 * A run as its request wants it: as events, in its current state (`background`), or when it has ended. Throws the
 * failure of a run that is waited for, and the 404 of one that is deleted in the meantime.
 */
export async function answerRun({ caller, request, address }: Creation, accepted: StoredResponse): Promise<CreatedRun> {
  if (request.stream) {
    const obfuscation = request.stream_options?.include_obfuscation ?? true;
    return { kind: "run", events: await followResponse(caller, address, { after: -1, obfuscation }) };
  }
  const include = createdInclude(request);
  if (request.background) return { kind: "response", response: await shownResponse(caller, accepted, include) };
  const finished = await caller.homes.ask(address.home, null, (home) => home.finished(address.turn));
  if (!finished) throw responseNotFound(responseId(address));
  const { error } = JSON.parse(finished.response.head) as { error: ResponseObject["error"] };
  if (error) throw finished.failure ? new ApiError(finished.failure) : failureOf(error);
  return { kind: "response", response: await shownResponse(caller, finished.response, include) };
}

/** Turns a failure that is stored only as a response into the error of a foreground request. */
function failureOf({ code, message }: NonNullable<ResponseObject["error"]>): ApiError {
  const status = code === "rate_limit_exceeded" ? 429 : code === "server_error" ? 502 : 400;
  return new ApiError({ status, message, code });
}

const MAX_KEY_LENGTH = 255;

/**
 * Creates a response under an idempotency key. The same request under the same key gets the same response, even while
 * it is running: the turn is a run of its home, which each of the requests may join. Throws the 422 of a key that came
 * with another body, and the errors that refuse the request.
 */
export async function createOnce(creation: Creation, key: string, body: unknown): Promise<CreatedRun> {
  checkKey(creation, key);
  const { homes } = creation.caller;
  const fingerprint = createHash("sha256").update(canonicalJson(body)).digest("hex");
  const { home, turn } = creation.address;
  const claim = await homes.idempotencyKey(key).claim(fingerprint, home, turn);
  if (claim.kind === "conflict") throw keyReused();
  const address = claim.kind === "known" ? { home: claim.home, turn: claim.turn } : creation.address;
  const keyed = { ...creation, address };
  if (claim.kind === "known" && claim.begun) {
    const known = await homes.ask(address.home, null, (stub) => stub.retrieve(address.turn));
    // The response was deleted or has expired. Its Idempotency-Key is still in use, and creates no other response.
    if (!known) throw responseNotFound(responseId(address));
    creation.scope.end();
    return answerRun(keyed, known);
  }
  // No run is known to have begun. The second of two requests finds the run that the first has begun.
  let accepted: StoredResponse;
  try {
    accepted = await startRun(keyed);
  } catch (error) {
    // Refused before anything has begun: the client may correct the request and try again. A run that waited in vain
    // for its conversation stays under the key. After any other error, the run may have begun.
    if (error instanceof ApiError && error.status !== 409) {
      await homes.idempotencyKey(key).unclaim(fingerprint, address.turn);
    }
    throw error;
  }
  // Runs in parallel with the answer. If it fails, the key only forgets a deletion.
  const noted = homes
    .idempotencyKey(key)
    .begun(fingerprint, address.home, address.turn)
    .catch(() => {});
  const created = await answerRun(keyed, accepted);
  await noted;
  return created;
}

function checkKey({ request }: Creation, key: string): void {
  if (key.length === 0 || key.length > MAX_KEY_LENGTH) {
    throw invalidRequest("Idempotency-Key", `Expected an Idempotency-Key of 1 to ${MAX_KEY_LENGTH} characters.`);
  }
  if (request.store === false) {
    const message = "An Idempotency-Key needs 'store: true': only a stored response can be returned again.";
    throw invalidRequest("Idempotency-Key", message);
  }
  if (isOnlyPrepared(request)) {
    const message = "A response that is only prepared accepts no Idempotency-Key. Prepare it again instead.";
    throw invalidRequest(preparedBy(request).join("."), message);
  }
}

function keyReused(): ApiError {
  const message = "This Idempotency-Key was used with another request body.";
  return new ApiError({ status: 422, message, param: "Idempotency-Key", code: "idempotency_key_reused" });
}
