import { invalidRequest, responseInProgress, responseNotFound } from "@responses-edge/responses-api/errors";
import { responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { homeUrl } from "../store/objects/rpc.ts";
import type { Caller } from "./transport.ts";

/** The last line of an export without which it is incomplete, as an import expects it. */
const LAST_LINE = `${JSON.stringify({ object: "export.page", has_more: false, next: null })}\n`;

/**
 * A response as JSON lines, with those that it continues: their input, output, times, raw messages and event logs, in the form of
 * the export of a tenant (`home-lines.ts`), which an import reads. Throws the 404 of an unknown response, the 409 of one in progress, and the 400 of a
 * deployment that hides reasoning, which raw messages have.
 */
export async function exportResponse(caller: Caller, address: TurnAddress): Promise<ReadableStream<Uint8Array>> {
  const { homes, config } = caller;
  if (config.hidesReasoning) {
    const message = "An export contains the model's reasoning, which this server hides.";
    throw invalidRequest(null, message, "export_hidden");
  }
  const { home, turn } = address;
  const stored = await homes.ask(home, null, (stub) => stub.retrieve(turn));
  if (!stored) throw responseNotFound(responseId(address));
  const { status, store } = JSON.parse(stored.head) as { status: string; store?: boolean };
  if (status === "queued" || status === "in_progress") throw responseInProgress();
  if (store === false) throw invalidRequest("response_id", "A response with 'store: false' is not exported.");
  const answer = await homes.ask(home, null, (stub) => stub.fetch(homeUrl({ kind: "export", turn })));
  if (!answer?.body) throw responseNotFound(responseId(address));
  const end = new TransformStream<Uint8Array, Uint8Array>({
    flush: (controller) => controller.enqueue(new TextEncoder().encode(LAST_LINE)),
  });
  return answer.body.pipeThrough(end);
}
