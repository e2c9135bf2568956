import { callJson } from "./api.ts";

/** The operations of the admin API that the user's role may use: `GET /console/rights` (`src/http/admin.ts` has the roles). */

let rights: { role: string; operations: readonly string[] } | undefined;

/** Loads them again. Where the server does not say, everything is offered: it refuses what it does not allow. */
export async function loadRights() {
  rights = await callJson("/console/rights").catch(() => undefined);
}

/**
 * Tells whether the role may use an operation.
 * @param operation its id, such as `createApiKey`
 */
export function may(operation: string) {
  return rights === undefined || rights.operations.includes(operation);
}
