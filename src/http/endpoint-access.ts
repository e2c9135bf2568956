import type { Context } from "hono";
import { countedWork, countRequest } from "../api/admission.ts";
import type { AppEnv } from "./app-env.ts";
import { checkMetricsToken, setAuthenticated } from "./auth.ts";
import { requireJsonBody } from "./browser-guard.ts";
import { adminOf, identityOf } from "./caller.ts";
import type { Access, Operation } from "./openapi/operation.ts";

/**
 * Does for every endpoint what its declaration says of who may ask and how that is counted. A handler has neither to check
 * who asks nor to count: whoever reaches it may ask, and a request that no admission has counted counts when it ends.
 */

/** Finds out who asks. Throws the 401s, the 403 of a key for something else, and the 404 of what needs `ADMIN_KEY` where there is none. */
export async function checkAccess(context: Context<AppEnv>, access: Access): Promise<void> {
  switch (access) {
    case "everyone":
      return;
    case "metrics":
      return checkMetricsToken(context.req.header("authorization"), context.get("config"));
    case "tenant":
      await setAuthenticated(context);
      identityOf(context);
      return;
    case "root":
      await setAuthenticated(context);
      adminOf(context);
      return;
    case "tenant or root":
      return setAuthenticated(context);
  }
}

/**
 * Answers a request of somebody who may ask, and counts it. Throws the 415 of a body that is not said to be JSON where it has to
 * be, the 429 of a limit, the 503 where limits cannot be checked, and as `handle` does.
 */
export async function answerCounted(
  context: Context<AppEnv>,
  { counted, body }: Operation,
  handle: () => Response | Promise<Response>,
): Promise<Response> {
  if (body === undefined || body.type === "application/json") requireJsonBody(context);
  const authenticated = counted && context.get("authenticated");
  if (!authenticated || authenticated.admin !== undefined || !authenticated.identity.counted) return handle();
  const counting = { isDone: false };
  context.set("counting", counting);
  const { identity } = authenticated;
  const waitUntil = (promise: Promise<unknown>) => context.executionCtx.waitUntil(promise);
  const request = { identity, quotas: context.env.QUOTAS, waitUntil, counting };
  const kind = counted === "read" ? "reads" : "requests";
  if (counted !== "turn") await countRequest(request, kind);
  return countedWork(request, kind, async () => handle());
}
