import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { shortened } from "@responses-edge/responses-api/validation-errors";
import { hasModel, type Identity } from "../contract/grants.ts";
import type { Caller } from "./transport.ts";

/**
 * The rules of the operator and of keys that need no counting (`limit-reservation.ts` counts): which features a request may
 * use, and which homes are noted.
 */

/**
 * The 400 of a field that only the operator can open to clients, with a variable (`closedFields` of the configuration). Such a
 * field affects more than the request's own sampling: the queue order of other tenants, other hosts, or the internals of
 * templates and processors. The rule is that of every endpoint that a model server is asked for.
 */
export function notOpen(field: string, variable: string): ApiError {
  const message = `'${field}' is not open to clients of this server. Its operator can open it (${variable}).`;
  return invalidRequest(field, message, "unsupported_parameter");
}

/** True if a key may use a model, by the name that clients use. */
export function mayUseModel({ policy }: Identity, name: string): boolean {
  return policy?.models.every((models) => hasModel(models, name)) ?? true;
}

/** Throws the 400 of more output tokens than a key allows. */
export function checkCap(field: string, wanted: number | null | undefined, cap: number | undefined): void {
  if (cap === undefined || wanted == null || wanted <= cap) return;
  throw invalidRequest(field, `Invalid '${field}': this API key allows a value <= ${cap}.`, "above_max_value");
}

/**
 * The model that a key gives a request. A request without a model gets the first that the key names in full. Undefined:
 * any model. Throws the 403 of a model that the key does not have.
 */
export function allowedModel(
  model: string | null | undefined,
  lists: readonly (readonly string[])[],
): string | undefined {
  const [first] = lists;
  if (!first) return undefined;
  const isAllowed = (name: string) => lists.every((models) => hasModel(models, name));
  const chosen = model ?? lists.flat().find((name) => !name.endsWith("*") && isAllowed(name));
  if (chosen === undefined) {
    throw invalidRequest("model", "Missing required parameter: 'model'.", "missing_required_parameter");
  }
  if (isAllowed(chosen)) return chosen;
  const message = `This API key does not have access to the model '${shortened(chosen)}'.`;
  throw new ApiError({ status: 403, message, param: "model", code: "model_not_found" });
}

/** Throws the 400 of a request that must be stored. An explicit `store: true` is read as `false`, as OpenAI does it. */
export function checkUnstored({ conversation }: CreateRequest): void {
  if (conversation != null) {
    const message = "This API key does not allow storing anything, including items of conversations.";
    throw invalidRequest("conversation", message);
  }
}

/**
 * vLLM's `priority`, where the operator has set any: never ahead of the tier's own. A background run with a later completion window has
 * that of a batch; one of `8h` comes after everything else.
 */
export function priorityOf(
  {
    priority: wanted,
    background,
    background_options: options,
  }: Pick<CreateRequest, "priority" | "background" | "background_options">,
  tier: string | undefined,
  priorities: Readonly<Record<string, number>>,
): number | undefined {
  if (Object.keys(priorities).length === 0) return undefined;
  const of = (name: string) => (Object.hasOwn(priorities, name) ? priorities[name] : undefined);
  const ofTier = (tier === undefined ? undefined : of(tier)) ?? of("default") ?? 0;
  const inBackground = of("background") ?? 0;
  const added = {
    soonest: inBackground,
    "2h": of("batch") ?? inBackground,
    "8h": Math.max(0, ...Object.values(priorities)),
  };
  const soonest = ofTier + (background ? added[options?.completion_window ?? "soonest"] : 0);
  if (wanted == null) return soonest;
  if (wanted >= soonest) return wanted;
  throw invalidRequest("priority", `Invalid 'priority': this API key allows a value >= ${soonest}.`, "below_min_value");
}

/** Milliseconds for which a note is trusted. Less than the time for which an erasure keeps it. */
const NOTED_MS = 600_000;
const MAX_NOTED = 10_000;

/** When homes were noted, Unix milliseconds; oldest first. */
const noted = new Map<string, number>();

/**
 * Notes a home that stores something for a tenant with `track_homes`, so that its data can be exported and erased. A
 * home that this isolate noted recently is not noted again. Undefined where there is nothing to note. Rejects where the
 * home cannot be noted: nothing may be stored there then.
 */
export function noteHome({ identity, tenant, quotas }: Caller, home: string): Promise<void> | undefined {
  if (!identity.policy?.tracksHomes) return undefined;
  const name = `${tenant}:${home}`;
  const now = Date.now();
  const age = now - (noted.get(name) ?? Number.NEGATIVE_INFINITY);
  return age >= 0 && age < NOTED_MS ? undefined : note(name, () => quotas.getByName(tenant).noteHome(home));
}

async function note(name: string, tell: () => Promise<void>): Promise<void> {
  const at = Date.now();
  await tell();
  noted.delete(name);
  noted.set(name, at);
  if (noted.size <= MAX_NOTED) return;
  const oldest = noted.keys().next().value;
  if (oldest !== undefined) noted.delete(oldest);
}
