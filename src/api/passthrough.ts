import { createHash } from "node:crypto";
import { checkMediaUrls } from "../assembly/media-policy.ts";
import { type PassedAnswer, passOn } from "../assembly/passed-request.ts";
import { type PassthroughEndpoint, VLLM_EXTRAS } from "../config.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { enterTurn } from "../store/open-turns.ts";
import { tenantCacheSalt } from "./cache-salt.ts";
import { urlsIn } from "./passed-urls.ts";
import type { Caller } from "./transport.ts";

export type { PassedAnswer } from "../assembly/passed-request.ts";

/**
 * vLLM's own endpoints through this door: the same keys, tenants and servers as for responses. A request is vLLM's to
 * understand; here is only seen to what it may reach beyond itself.
 */

/** Those that vLLM keeps a prefix cache for, and takes a salt of. */
const SALTED: ReadonlySet<PassthroughEndpoint> = new Set(["chat/completions", "completions"]);

/** Those that vLLM has at its root. */
const AT_ROOT: ReadonlySet<PassthroughEndpoint> = new Set(["tokenize", "detokenize"]);

/** What of a request reaches beyond it, as `VLLM_EXTRAS` does: other requests, other hosts, the server's own inside. */
const OPERATORS_FIELDS = [
  "chat_template",
  "ec_transfer_params",
  "media_io_kwargs",
  "prompt_embeds",
  "request_id",
  "session_id",
] as const;

/** Names of models are short; what is longer is none. UTF-16 units. */
const MAX_MODEL_LENGTH = 1_024;

/** As much of a request's beginning tells one session's requests from another's. UTF-16 units. */
const MAX_BEGINNING = 4_096;

/** How many messages there are before the answers of the model's begin. */
const FIRST_MESSAGES = 2;

/** Passes a JSON request on. `body` is as it was parsed. Throws the 4xx of what the operator has not opened, and as vLLM does. */
export async function passJson(caller: Caller, name: PassthroughEndpoint, body: unknown): Promise<PassedAnswer> {
  if (!isJsonObject(body)) throw invalidRequest(null, "The body must be a JSON object.", "invalid_type");
  const { config, tenant, signal } = caller;
  checkFields(caller, (field) => body[field] != null);
  await checkMediaUrls(urlsIn(body), config, signal);
  const model = modelOf(caller, body.model);
  const { cache_salt: salt } = body;
  if (salt != null && typeof salt !== "string") {
    throw invalidRequest("cache_salt", "Expected a string.", "invalid_type");
  }
  const sent: JsonObject = { ...body };
  if (model !== undefined) sent.model = model;
  if (SALTED.has(name)) sent.cache_salt = tenantCacheSalt(tenant, salt);
  const hint = typeof body.prompt_cache_key === "string" ? body.prompt_cache_key : caller.clientSession;
  return pass(caller, name, {
    body: JSON.stringify(sent),
    model,
    hint,
    beginning: hint === undefined ? beginningOf(body) : undefined,
    isStream: body.stream === true,
  });
}

/**
 * Passes a form on. `type` says where its parts begin. Throws the 400 of a form that is none, the 4xx of what the operator has not
 * opened, and as vLLM does.
 */
export async function passForm(
  caller: Caller,
  name: PassthroughEndpoint,
  bytes: Uint8Array,
  type: string,
): Promise<PassedAnswer> {
  let form: FormData;
  try {
    form = await new Response(bytes, { headers: { "content-type": type } }).formData();
  } catch {
    throw invalidRequest(null, "We could not read the body of your request as multipart/form-data.", "invalid_form");
  }
  checkFields(caller, (field) => form.has(field));
  const model = modelOf(caller, form.get("model") ?? undefined);
  if (model !== undefined) form.set("model", model);
  // Written anew: what this server has checked is what vLLM reads.
  const written = new Response(form);
  const body = new Uint8Array(await written.arrayBuffer());
  const contentType = written.headers.get("content-type") ?? type;
  const isStream = form.get("stream") === "true";
  return pass(caller, name, { body, contentType, model, hint: caller.clientSession, beginning: undefined, isStream });
}

interface Passed {
  body: string | Uint8Array<ArrayBuffer>;
  contentType?: string;
  model: string | undefined;
  hint: string | undefined;
  beginning: string | undefined;
  isStream: boolean;
}

/** Has it answered, within what this isolate may have open. */
async function pass(caller: Caller, name: PassthroughEndpoint, passed: Passed): Promise<PassedAnswer> {
  const { config, tenant, waitUntil } = caller;
  const { hint, beginning, ...request } = passed;
  const place = enterTurn(config.maxOpenTurns);
  let isRunning = false;
  try {
    const path = AT_ROOT.has(name) ? `//${name}` : `/${name}`;
    const affinity = { isRooted: false, hint, beginning };
    const answer = await passOn({ ...request, path, tenant, affinity }, config, caller);
    isRunning = true;
    waitUntil(answer.ended.finally(() => place[Symbol.dispose]()));
    return answer;
  } finally {
    if (!isRunning) place[Symbol.dispose]();
  }
}

/** Throws the 400 of a field that only the operator may open. */
function checkFields({ config }: Caller, has: (field: string) => boolean): void {
  for (const field of VLLM_EXTRAS) if (has(field) && !config.vllmExtras.has(field)) throw closed(field, "VLLM_EXTRAS");
  for (const field of OPERATORS_FIELDS) {
    if (has(field) && !config.vllmExtraFields.includes(field)) throw closed(field, "VLLM_EXTRA_FIELDS");
  }
}

function closed(field: string, variable: string) {
  return invalidRequest(
    field,
    `'${field}' is not open to clients of this server. Its operator can open it (${variable}).`,
    "unsupported_parameter",
  );
}

/** The model's name at vLLM; undefined where none is named. */
function modelOf({ config }: Caller, name: unknown): string | undefined {
  if (name === undefined || name === null) return undefined;
  if (typeof name !== "string" || name.length > MAX_MODEL_LENGTH) {
    throw invalidRequest("model", "Expected the name of a model.", "invalid_type");
  }
  return Object.hasOwn(config.modelAliases, name) ? config.modelAliases[name] : name;
}

/** How the prompt of a chat or a completion begins, hashed; undefined of what has no prompt. */
function beginningOf({ system, tools, messages, prompt }: JsonObject): string | undefined {
  const first = Array.isArray(messages) ? messages.slice(0, FIRST_MESSAGES) : prompt;
  if (first === undefined) return undefined;
  const text = (value: unknown) => (value === undefined ? "" : JSON.stringify(value).slice(0, MAX_BEGINNING));
  return createHash("sha256").update([system, tools, first].map(text).join("\0")).digest("base64url");
}
