import { compactRequest } from "@responses-edge/responses-api/create-bodies";
import { clientLeft, internalError } from "@responses-edge/responses-api/errors";
import { responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { withoutContent } from "@responses-edge/responses-api/items/parts";
import { type Item, itemId, type OutputItem } from "@responses-edge/responses-api/items/registry";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { openNewest, SUMMARY_ID, standingPast } from "@responses-edge/turn/compacted-past";
import { NO_USAGE } from "@responses-edge/turn/response";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import { assembleTurn } from "../assembly/assemble-turn.ts";
import { MAX_CALL_LENGTH } from "../store/objects/rpc.ts";
import { tellContent } from "../telemetry/content-log.ts";
import { acceptCreate, prepareTurn, saidTurn } from "./creation.ts";
import { RequestScope } from "./request-scope.ts";
import type { Caller } from "./transport.ts";

/**
 * Compacts the input of a request and the history that it continues. Gives the user's messages as they are, and one
 * compaction item, which stands for all of them and for the rest (openai 7.59 `CompactedResponse`). Stores nothing: no
 * request can continue its id. Throws the ApiErrors of an invalid request, the 503 of an isolate without memory
 * permits, and an ApiError where the summary fails.
 */
export async function compactConversation(caller: Caller, body: unknown) {
  using scope = RequestScope.open(caller);
  const creation = await acceptCreate(scope, caller, body, { schema: compactRequest, makesTurn: false });
  const { address, createdAt, abort, measured, modelAccess } = creation;
  const { config, tenant, waitUntil, onAttempt, identity } = caller;
  const { spec, past } = await prepareTurn(creation, undefined);
  const turn = assembleTurn(spec, past, {
    config,
    modelAccess,
    access: {},
    outputLength: MAX_CALL_LENGTH,
    signal: abort.signal,
    waitUntil,
    onAttempt,
    measured,
  });
  if (measured.turn) measured.turn.isStored = false;
  const started = turn.start();
  await started;
  const result = await turn.run(started, async (_, terminate) => terminate());
  scope.end(result);
  tellContent(config, identity.policy, saidTurn(creation, result), { waitUntil, isBrief: false });
  const { outcome, closed } = result;
  if (outcome.status === "failed") throw outcome.error;
  if (outcome.status === "cancelled") throw clientLeft();
  const compaction = (JSON.parse(closed.output) as OutputItem[]).find(({ type }) => type === "compaction");
  if (!compaction) throw internalError();
  const { usage } = JSON.parse(closed.head) as Pick<ResponseObject, "usage">;
  const opened = openNewest(past, spec.request, compactionCodec(config.encryptionKeys, tenant));
  const { history, input: own } = standingPast(past, opened, "developer");
  const messages = [...history, ...own].filter(isUserMessage);
  return {
    id: responseId(address),
    object: "response.compaction",
    created_at: Math.floor(createdAt / 1000),
    output: [...messages, compaction].map((item, index) => withOwnId(item, address, index)),
    usage: usage ?? NO_USAGE,
  };
}

function isUserMessage(item: Item): boolean {
  return item.type === "message" && item.role === "user" && item.id !== SUMMARY_ID;
}

function withOwnId<Kept extends { type: string }>(item: Kept, address: TurnAddress, index: number): Kept {
  return { ...withoutContent(item), id: itemId(item.type, address, "output", index) };
}
