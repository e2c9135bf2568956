import { askedFields } from "@responses-edge/responses-api/asked-fields";
import { invalidRequest, responseInProgress, responseNotFound } from "@responses-edge/responses-api/errors";
import { MAX_ID_LENGTH, responseId, type TurnAddress, treeOf } from "@responses-edge/responses-api/ids";
import { MAX_TEXT_LENGTH } from "@responses-edge/responses-api/items/parts";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { z } from "zod";
import { acceptCreate } from "./creation.ts";
import { RequestScope } from "./request-scope.ts";
import { answerRun, startRun } from "./runs.ts";
import type { Caller, CreatedRun } from "./transport.ts";

/** Forks: new branches of stored responses. */

/** The body of a fork: with the fields of a create that the branch has in place of the response's own. */
export const forkBody = z.looseObject({
  at: z
    .union([z.int().min(0), z.string().min(1).max(MAX_ID_LENGTH)])
    .nullish()
    .describe(
      "Up to where the branch has the response's own output: the sequence number of an event, or the id of an item or a call, which is kept. Absent: the output begins anew.",
    ),
  output: z
    .string()
    .max(MAX_TEXT_LENGTH)
    .nullish()
    .describe("Another output of the call in `at`: of a hosted call, or of a client's call that the input answers."),
});

/** Fields of a create that a branch has from its response. */
const OF_THE_RESPONSE = ["input", "previous_response_id", "conversation"] as const;

/**
 * Creates a branch of an ended response: a run whose output begins with that of the response, up to `at`. It has the response's fields,
 * except for those of `body`. Throws the 404 of an unknown response, the 409 of one in progress, the 400s of a body and of a
 * point from which no branch can go on, and everything that `createResponse` throws for a run.
 */
export async function forkResponse(caller: Caller, address: TurnAddress, body: unknown): Promise<CreatedRun> {
  const { at, output, ...changes } = parse(forkBody, body);
  for (const field of OF_THE_RESPONSE) {
    if (changes[field] !== undefined) {
      throw invalidRequest(field, `A branch has the '${field}' of its response. Create a response to change it.`);
    }
  }
  const stored = await caller.homes.ask(address.home, null, (home) => home.retrieve(address.turn));
  if (!stored) throw responseNotFound(responseId(address));
  const head = JSON.parse(stored.head) as Omit<ResponseObject, "output">;
  if (head.status === "queued" || head.status === "in_progress") throw responseInProgress();
  // The home, which has the input, puts it in place of this one.
  const { previous_response_id } = head;
  const asked = { ...askedFields(head), previous_response_id, ...changes, input: "" };
  using scope = RequestScope.open(caller);
  const creation = await acceptCreate(scope, caller, asked, { kind: "run", tree: treeOf(address) });
  const fork = { turn: address.turn, ...(at != null && { at }), ...(output != null && { output }) };
  return await answerRun(creation, await startRun(creation, fork));
}
