import type { Flow, Priority } from "@responses-edge/engines/pool/fair-queue";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { Identity } from "../contract/grants.ts";

/** The senders of requests, as the queues of saturated model servers tell requests apart (docs/fleet.md#fair-sharing). */

/** The key of a request, and the shares of it and its tenant. Plain data, which a run stores. */
export interface Sender {
  key: string;
  tenantWeight: number;
  keyWeight: number;
}

export function senderOf({ keyId, policy }: Pick<Identity, "keyId" | "policy">): Sender {
  return { key: keyId, tenantWeight: policy?.tenantWeight ?? 1, keyWeight: policy?.keyWeight ?? 1 };
}

/** A sender whose key is unknown. */
const NO_SENDER: Sender = { key: "", tenantWeight: 1, keyWeight: 1 };

/** The flow of requests with one sender. `conversation` identifies those of one conversation; empty if that is unknown. */
export function flowOf(
  { tenant, sender = NO_SENDER }: { tenant: string; sender?: Sender | undefined },
  priority: Priority,
  conversation: string | undefined,
): Flow {
  return { ...sender, priority, tenant, conversation: conversation ?? "" };
}

/** The class of a turn: a background run with a later completion window is in that of batches. */
export function priorityClass(
  { background, background_options: options }: Pick<CreateRequest, "background" | "background_options">,
  { sendsBatches }: { sendsBatches: boolean },
): Priority {
  const isLater = options?.completion_window !== undefined && options.completion_window !== "soonest";
  if (sendsBatches || (background && isLater)) return "batch";
  return background ? "background" : "interactive";
}
