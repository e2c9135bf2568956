import { createHash } from "node:crypto";
import { isOnlyPrepared, preparedBy } from "../protocol/create-request.ts";
import { ApiError, invalidRequest, responseNotFound } from "../protocol/errors.ts";
import { responseId } from "../protocol/ids.ts";
import { canonicalJson } from "../protocol/json.ts";
import type { StoredResponse } from "../store/turn-store.ts";
import type { Creation } from "./creation.ts";
import { answerRun, startRun } from "./runs.ts";
import type { Created } from "./transport.ts";

const MAX_KEY_LENGTH = 255;

/**
 * Creates a response under an idempotency key. The same request under the same key gets the same response, also while
 * it is still running: the turn is a run of its home, which any of them may join.
 * Throws the 422 of a key that came with another body, and what refuses the request.
 */
export async function createOnce(creation: Creation, key: string, body: unknown): Promise<Created<never>> {
  checkKey(creation, key);
  const { homes } = creation.caller;
  const fingerprint = createHash("sha256").update(canonicalJson(body)).digest("hex");
  const { home, turn } = creation.address;
  const claim = await homes.openKey(key, (stub) => stub.claim(fingerprint, home, turn));
  if (claim.kind === "conflict") throw keyReused();
  const address = claim.kind === "known" ? { home: claim.home, turn: claim.turn } : creation.address;
  const keyed = { ...creation, address };
  if (claim.kind === "known" && claim.begun) {
    const known = await homes.ask(address.home, null, (stub) => stub.retrieve(address.turn));
    // Deleted or expired: the key stands for that response, and brings no other to life.
    if (!known) throw responseNotFound(responseId(address));
    creation.scope.end();
    return answerRun(keyed, known);
  }
  // Not begun as far as is known: whoever comes second finds the run that the first has begun.
  let accepted: StoredResponse;
  try {
    accepted = await startRun(keyed);
  } catch (error) {
    // Refused before anything was begun: the client may mend it and try again. One that waited in vain for its
    // conversation keeps its turn under the key; and whatever else happened, the run may have begun.
    if (error instanceof ApiError && error.status !== 409) {
      await homes.openKey(key, (stub) => stub.unclaim(fingerprint, address.turn));
    }
    throw error;
  }
  // Beside the answer. Where it fails, the key only forgets a deletion.
  const noted = homes.openKey(key, (stub) => stub.begun(fingerprint, address.home, address.turn)).catch(() => {});
  const created = await answerRun(keyed, accepted);
  await noted;
  return created;
}

function checkKey({ request }: Creation, key: string): void {
  if (key.length === 0 || key.length > MAX_KEY_LENGTH) {
    throw invalidRequest("Idempotency-Key", `Expected an Idempotency-Key of 1 to ${MAX_KEY_LENGTH} characters.`);
  }
  if (request.store === false) {
    throw invalidRequest(
      "Idempotency-Key",
      "An Idempotency-Key needs 'store: true': the response is kept to be given again.",
    );
  }
  if (isOnlyPrepared(request)) {
    throw invalidRequest(
      preparedBy(request).join("."),
      "A response that is only prepared takes no Idempotency-Key: prepare it again instead.",
    );
  }
}

function keyReused(): ApiError {
  return new ApiError({
    status: 422,
    message: "This Idempotency-Key was used with another request body.",
    param: "Idempotency-Key",
    code: "idempotency_key_reused",
  });
}
