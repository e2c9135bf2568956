import type { z } from "zod";
import { checkRequestItems } from "../assembly/request-items.ts";
import { type Affinity, placedTree } from "../assembly/session.ts";
import type { InputItem } from "../items/registry.ts";
import {
  type CreateRequest,
  conversationOf,
  createRequest,
  readInputAhead,
  toItems,
} from "../protocol/create-request.ts";
import { previousResponseNotFound } from "../protocol/errors.ts";
import { withExtraFields } from "../protocol/extra-fields.ts";
import { newTurnAddress, parseResponseId, type TurnAddress } from "../protocol/ids.ts";
import { LongWork } from "../protocol/long-work.ts";
import { withoutUnknownTools } from "../protocol/unknown-tools.ts";
import { parse } from "../protocol/validation.ts";
import { conversationAddress, knownTree } from "../store/client.ts";
import { checkDisk } from "../store/free-disk.ts";
import { type Permits, turnPermits } from "../store/memory-permits.ts";
import { newTree } from "../store/new-trees.ts";
import { type Admission, type AdmissionKind, admit } from "./admission.ts";
import { affinityOf } from "./affinity.ts";
import { tenantCacheSalt } from "./cache-salt.ts";
import { abortedByClient } from "./client-left.ts";
import { underPolicy } from "./policy.ts";
import type { Caller } from "./transport.ts";
import { checkVllmExtras } from "./vllm-extras.ts";

/** A response that is to be created: what the ways of creating one begin with. */

/** Of the body of a first turn in a home of several trees, as `Caller.bodyLength` has it. */
const MAX_SHARED_LENGTH = 256 * 1024;

/** A checked request, with all that is known before anybody is asked. */
export interface Creation {
  caller: Caller;
  request: CreateRequest;
  /** The request's own input, references not resolved. */
  input: InputItem[];
  /** The turn that the new one continues. */
  previous: TurnAddress | null;
  conversation: { id: string; address: TurnAddress } | undefined;
  /** The new turn's own address. */
  address: TurnAddress;
  /** It is the first that is put into its home. */
  isNewHome: boolean;
  cacheSalt: string;
  /** What it has in common with other turns, which do well at the same model server. */
  affinity: Affinity;
  /** Unix milliseconds. */
  createdAt: number;
  /** Aborted, with the 499 that says so, when the client leaves. */
  abort: AbortController;
  /** What the request has reserved of its caller's limits. Whoever goes on with the creation ends it. */
  admission: Admission;
  /** The memory permits of the turn. Whoever goes on with the creation disposes of them. */
  permits: Permits;
}

export interface CreationOptions {
  /** What makes a create of another request. */
  schema?: z.ZodType<CreateRequest>;
  /** What the client says again of an answer before. */
  turnState?: string | undefined;
  /** False: nothing is made that could be continued. */
  makesTurn?: boolean;
  /** What is to come of it; by itself, what the request says. */
  kind?: AdmissionKind | undefined;
}

/**
 * Checks the body of a create, or of another request that `schema` makes one of. Throws the 400s of all that can be seen to be
 * wrong without asking a home or the model server, the 404 of a conversation's id that this server cannot have made, and what
 * refuses the caller: the 403s and 400s of its policy, the 429s and the 503 of its limits, and those of an isolate that has no
 * room; the 507 of a disk without; of several model servers also what asking one for its models throws. Every way of creating passes here.
 */
export async function checkCreation(
  caller: Caller,
  sent: unknown,
  { schema = createRequest, turnState, makesTurn = true, kind }: CreationOptions = {},
): Promise<Creation> {
  using scope = new DisposableStack();
  const permits = scope.use(turnPermits(caller, caller.bodyLength));
  const { config, tenant, identity, signal } = caller;
  const body = config.dropsUnknownTools ? withoutUnknownTools(sent) : sent;
  await new LongWork(tenant).run(readInputAhead(body));
  const asked = withExtraFields(parse(schema, body), body, config.vllmExtraFields);
  checkVllmExtras(asked, config.vllmExtras);
  const request = underPolicy(asked, identity, config);
  const id = conversationOf(request);
  const conversation = id === undefined ? undefined : { id, address: conversationAddress(id) };
  // A run is stored in any case, and so are the items of a conversation.
  const isStored =
    request.store !== false || request.background === true || conversation !== undefined || kind === "run";
  if (makesTurn && isStored) checkDisk();
  const input = toItems(request.input);
  await checkRequestItems(input, "input", caller, signal);
  const previous = previousAddress(request.previous_response_id);
  const abort = abortedByClient(signal);
  const newPlace = () => {
    // What begins large leaves little room to others.
    const isShared =
      config.treesPerHome > 1 && makesTurn && request.store !== false && caller.bodyLength <= MAX_SHARED_LENGTH;
    const draw = newTree(tenant, isShared ? config.treesPerHome : 1);
    return placedTree({ tenant, model: request.model, affinity }, draw, config, abort.signal);
  };
  const known = knownTree(input, previous, conversation?.address);
  const affinity = affinityOf({
    request,
    input,
    continues: known !== undefined,
    isKept: makesTurn && (request.store !== false || caller.keep !== undefined),
    clientSession: caller.clientSession ?? turnState,
    hasPool: config.modelServers.length > 1,
  });
  const { home, tree, isFirst } = known ? { ...known, isFirst: false } : await newPlace();
  const address = newTurnAddress(home, tree);
  const kindOf = kind ?? (request.background ? "run" : "turn");
  const admitted = admit(caller, request, input, address, { kind: kindOf, makesTurn });
  const admission = admitted instanceof Promise ? await admitted : admitted;
  scope.move();
  return {
    caller,
    request,
    input,
    previous,
    conversation,
    address,
    isNewHome: isFirst,
    cacheSalt: tenantCacheSalt(tenant, request.cache_salt),
    affinity,
    createdAt: Date.now(),
    abort,
    admission,
    permits,
  };
}

function previousAddress(id: string | null | undefined): TurnAddress | null {
  if (id == null) return null;
  const address = parseResponseId(id);
  if (!address) throw previousResponseNotFound(id);
  return address;
}
