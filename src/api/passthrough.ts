import { hashText } from "@responses-edge/engines/hash";
import { refuseLargeFormats } from "@responses-edge/responses-api/bounded-formats";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import type { UsageKind } from "@responses-edge/usage-limits";
import { checkMediaUrls } from "../assembly/media-policy.ts";
import { type PassedAnswer, passOn, routed } from "../assembly/model-access.ts";
import { tenantCacheSalt } from "../assembly/session.ts";
import { type PassthroughEndpoint, VLLM_EXTRAS } from "../config/index.ts";
import type { EndUserFields } from "../store/quota/allowances.ts";
import { admitPassed, type TokenCount } from "./admission.ts";
import { checkImageFields, imageConfigFor, imageModel, imagesIn, isOfImages } from "./passed-images.ts";
import { countedBody } from "./passed-usage.ts";
import { allowedModel, checkCap, notOpen, priorityOf } from "./policy.ts";
import { RequestScope } from "./request-scope.ts";
import type { Caller } from "./transport.ts";

export type { PassedAnswer } from "../assembly/model-access.ts";

/**
 * vLLM's own endpoints, with the keys, tenants and servers of responses. A request is vLLM's to
 * understand; here is only seen to what it may reach beyond itself.
 */

/** Those that make a model read a prompt, for which vLLM keeps a prefix cache, and take a salt. Forms have no field for one. */
const SALTED = new Set<PassthroughEndpoint>([
  "chat/completions",
  "completions",
  "messages",
  "embeddings",
  "rerank",
  "score",
]);

/** Those whose streams tell their usage where `stream_options` asks for it. Streams of `messages` always do. */
const ASKED_FOR_USAGE = new Set<PassthroughEndpoint>(["chat/completions", "completions"]);

/** Those that put each document to the model together with the query. */
const PAIRING = new Set<PassthroughEndpoint>(["rerank", "score"]);

/** Those whose answers are made token by token, and the fields that limit them; the first is the one that is said for a client. */
const OUTPUT_LIMITS: Partial<Record<PassthroughEndpoint, readonly string[]>> = {
  "chat/completions": ["max_completion_tokens", "max_tokens"],
  completions: ["max_tokens", "max_completion_tokens"],
  messages: ["max_tokens"],
  "audio/transcriptions": ["max_completion_tokens"],
  "audio/translations": ["max_completion_tokens"],
};

/** The kinds of usage that are none of completions. */
const KINDS: Partial<Record<PassthroughEndpoint, UsageKind>> = {
  embeddings: "embeddings",
  "audio/transcriptions": "audio_transcriptions",
  "audio/translations": "audio_transcriptions",
  "images/generations": "images",
  "images/edits": "images",
};

/** Those that vLLM has at its root. They use no tokens. */
export const AT_ROOT: ReadonlySet<PassthroughEndpoint> = new Set(["tokenize", "detokenize"]);

/** Fields that reach beyond their request, as those of `VLLM_EXTRAS` do: to other requests, other hosts, or the server's own inside. */
const OPERATORS_FIELDS = [
  ...["chat_template", "ec_transfer_params", "media_io_kwargs", "prompt_embeds", "request_id", "session_id"],
];

/** Fields of any version of vLLM, and of Anthropic's, that bind what a model writes. */
const FORMATS = [
  ...["guided_choice", "guided_grammar", "guided_json", "guided_regex", "output_config", "response_format"],
  ...["structural_tag", "structured_outputs", "tools"],
] as const;

/** Names of models are short; what is longer is none. UTF-16 units. */
const MAX_MODEL_LENGTH = 1_024;

/** As much of a request's beginning tells one session's requests from another's. UTF-16 units. */
const MAX_BEGINNING = 4_096;

/** Beside the limits of output: how many answers a request asks for. */
const ANSWERS = ["n", "best_of"] as const;

/** How many messages there are before the answers of the model's begin. */
const FIRST_MESSAGES = 2;

/** Passes a JSON request on. `body` is as it was parsed. Throws the 4xx of what the operator has not opened, and as vLLM does. */
export async function passJson(caller: Caller, name: PassthroughEndpoint, body: unknown): Promise<PassedAnswer> {
  if (!isJsonObject(body)) throw invalidRequest(null, "The body must be a JSON object.", "invalid_type");
  const { config, tenant, signal } = caller;
  using scope = RequestScope.open<TokenCount>(caller);
  checkFields(caller, (field) => body[field] != null);
  if (isOfImages(name)) checkImageFields(caller, Object.entries(body), () => false);
  refuseLargeFormats(Object.fromEntries(FORMATS.map((field) => [field, body[field]])), []);
  await checkMediaUrls(urlsIn(body), config, signal);
  const hint = typeof body.prompt_cache_key === "string" ? body.prompt_cache_key : caller.clientSession;
  const beginning = hint === undefined ? beginningOf(body) : undefined;
  const model = modelOf(caller, body.model ?? imageModel(caller, name), hint ?? beginning);
  const limits = limitsOf(caller, name, body);
  const { cache_salt: salt } = body;
  if (salt != null && typeof salt !== "string") {
    throw invalidRequest("cache_salt", "Expected a string.", "invalid_type");
  }
  if (body.stream != null && typeof body.stream !== "boolean") {
    throw invalidRequest("stream", "Expected a boolean.", "invalid_type");
  }
  const isStream = body.stream === true;
  const asked = isStream && caller.identity.counted && ASKED_FOR_USAGE.has(name) ? usageAsked(body) : undefined;
  const sent: JsonObject = { ...body, ...limits, ...(asked && { stream_options: asked.options }) };
  if (model !== undefined) sent.model = model;
  if (isOfImages(name)) sent.response_format = "b64_json";
  if (SALTED.has(name)) sent.cache_salt = tenantCacheSalt(tenant, salt);
  const passed = {
    body: JSON.stringify(sent),
    model,
    hint,
    beginning,
    isStream,
    units: imagesIn(name, body.n),
    hidesUsage: asked?.isOurs === true,
    most: () => ({ input: mostInput(name, body), cached: 0, output: mostOutput(caller, name, sent) }),
    endUser: endUserIn(body),
  };
  return await pass(caller, name, passed, scope);
}

/** The end user as OpenAI's endpoints name it, and Anthropic's. */
function endUserIn({ safety_identifier: identifier, user, metadata }: JsonObject): EndUserFields {
  const ofMessages = isJsonObject(metadata) ? metadata.user_id : undefined;
  const names = [identifier, user, ofMessages].filter((name) => typeof name === "string" && name !== "");
  return { safety_identifier: names[0] as string | undefined };
}

/** The `stream_options` that make a stream tell its usage. `isOurs`: the client has not asked for that. */
function usageAsked({ stream_options: options }: JsonObject): { options: JsonObject; isOurs: boolean } {
  if (options != null && !isJsonObject(options)) {
    throw invalidRequest("stream_options", "Expected an object.", "invalid_type");
  }
  if (options?.include_usage) return { options, isOurs: false };
  // vLLM heeds it beside `include_usage` alone.
  return { options: { ...options, include_usage: true, continuous_usage_stats: false }, isOurs: true };
}

/**
 * The cap and the priority that the caller's key adds to a request. Throws the 400s of a request that goes beyond them.
 */
function limitsOf({ identity, config }: Caller, name: PassthroughEndpoint, body: JsonObject): JsonObject {
  const fields = OUTPUT_LIMITS[name];
  if (!fields) return {};
  const { policy } = identity;
  const cap = policy?.maxOutputTokens;
  // vLLM reads a number in a string as that number: what is to be held to a limit must be one.
  for (const field of [...fields, ...ANSWERS, "priority"]) {
    if (body[field] != null && typeof body[field] !== "number") throw noNumber(field);
  }
  for (const field of fields) checkCap(field, numberOf(body[field]), cap);
  const isLimited = fields.some((field) => body[field] != null);
  const [field = ""] = fields;
  // Anthropic's Messages have no priority.
  const wanted = numberOf(body.priority);
  const priority = name === "messages" ? undefined : priorityOf({ priority: wanted }, policy?.tier, config.priorities);
  return {
    ...(cap !== undefined && !isLimited && { [field]: cap }),
    ...(priority !== undefined && { priority }),
  };
}

/** About how many tokens the model will read. */
function mostInput(name: PassthroughEndpoint, body: JsonObject): number {
  const all = estimateTokens(body);
  if (!PAIRING.has(name)) return all;
  const lists = Object.values(body).filter((value) => Array.isArray(value));
  const documents = lists.toSorted((one, other) => other.length - one.length)[0];
  if (!documents) return all;
  // The query is read once more for each document but the first.
  return all + (documents.length - 1) * Math.max(0, all - estimateTokens(documents));
}

/**
 * How many tokens the answers may have: each of them, of each prompt (completions take several). Which of two limits holds is
 * the server's to know: the larger is reserved.
 */
function mostOutput({ config }: Caller, name: PassthroughEndpoint, body: JsonObject): number {
  const fields = OUTPUT_LIMITS[name];
  if (!fields) return 0;
  const limits = fields.map((field) => numberOf(body[field])).filter((limit) => limit !== undefined);
  const each = limits.length > 0 ? Math.max(...limits) : config.keys.reservedOutputTokens;
  const answers = Math.max(1, ...ANSWERS.map((field) => numberOf(body[field]) ?? 1));
  // A prompt is a text or a list of token ids; a list of these is several.
  const { prompt } = body;
  const prompts = Array.isArray(prompt) && typeof prompt[0] !== "number" ? Math.max(1, prompt.length) : 1;
  return Math.max(0, each) * answers * prompts;
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
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
  const { config, clientSession, identity } = caller;
  using scope = RequestScope.open<TokenCount>(caller);
  let form: FormData;
  try {
    form = await new Response(bytes, { headers: { "content-type": type } }).formData();
  } catch {
    throw invalidRequest(null, "We could not read the body of your request as multipart/form-data.", "invalid_form");
  }
  checkFields(caller, (field) => form.has(field));
  const isImages = isOfImages(name);
  if (isImages) checkImageFields(caller, form, (value) => typeof value !== "string");
  const model = modelOf(caller, form.get("model") ?? imageModel(caller, name), clientSession);
  if (model !== undefined) form.set("model", model);
  if (isImages) return await passImages(caller, name, form, model, scope);
  const limit = formNumber(form, "max_completion_tokens");
  checkCap("max_completion_tokens", limit, identity.policy?.maxOutputTokens);
  const cap = limit ?? identity.policy?.maxOutputTokens;
  if (cap !== undefined) form.set("max_completion_tokens", String(cap));
  const isStream = formFlag(form, "stream");
  const hidesUsage = isStream && identity.counted !== undefined && !formFlag(form, "stream_include_usage");
  if (hidesUsage) {
    form.set("stream_include_usage", "true");
    form.delete("stream_continuous_usage_stats");
  }
  // How long a sound is, only the model knows.
  const most = () => ({ input: 0, cached: 0, output: cap ?? config.keys.reservedOutputTokens });
  const passed = { model, hint: clientSession, beginning: undefined, isStream, hidesUsage, most };
  return await pass(caller, name, { ...passed, ...(await writtenForm(form)) }, scope);
}

/** A form written anew: what this server has checked is what its reader gets. */
async function writtenForm(
  form: FormData,
): Promise<{ body: Uint8Array<ArrayBuffer>; contentType: string | undefined }> {
  const written = new Response(form);
  const contentType = written.headers.get("content-type") ?? undefined;
  return { body: new Uint8Array(await written.arrayBuffer()), contentType };
}

async function passImages(
  caller: Caller,
  name: PassthroughEndpoint,
  form: FormData,
  model: string | undefined,
  scope: RequestScope<TokenCount>,
): Promise<PassedAnswer> {
  form.set("response_format", "b64_json");
  const most = () => ({ input: estimateTokens(form.get("prompt")), cached: 0, output: 0 });
  const endUser = endUserIn(Object.fromEntries(form));
  const about = { model, hint: caller.clientSession, beginning: undefined, endUser };
  const units = imagesIn(name, form.get("n"));
  const passed = { ...about, isStream: false, hidesUsage: false, most, units, ...(await writtenForm(form)) };
  return await pass(caller, name, passed, scope);
}

/** Throws the 400 of a field that is there and no number. */
function formNumber(form: FormData, field: string): number | undefined {
  const [text, ...others] = form.getAll(field);
  if (text === undefined) return undefined;
  if (others.length === 0 && typeof text === "string" && /^\d{1,15}$/.test(text)) return Number(text);
  throw noNumber(field);
}

function noNumber(field: string): ApiError {
  return invalidRequest(field, `Invalid type for '${field}': expected a number.`, "invalid_type");
}

/** Throws the 400 of a field that is there and neither true nor false: vLLM takes many words for both. */
function formFlag(form: FormData, field: string): boolean {
  const [text = "false", ...others] = form.getAll(field);
  if (others.length === 0 && (text === "true" || text === "True")) return true;
  if (others.length === 0 && (text === "false" || text === "False" || text === "")) return false;
  throw invalidRequest(field, `Invalid type for '${field}': expected true or false.`, "invalid_type");
}

interface Passed {
  body: string | Uint8Array<ArrayBuffer>;
  contentType?: string | undefined;
  model: string | undefined;
  hint: string | undefined;
  beginning: string | undefined;
  isStream: boolean;
  /** The stream tells its usage because this server has asked for it, and not the client. */
  hidesUsage: boolean;
  /** The most tokens that the request takes. */
  most: () => TokenCount;
  /** The images that it asks for. */
  units?: number | undefined;
  /** Forms name no end user. */
  endUser?: EndUserFields;
}

/** Has it answered, within what the caller's limits allow. The answer takes over what `scope` owns until its bytes have ended. */
async function pass(
  caller: Caller,
  name: PassthroughEndpoint,
  passed: Passed,
  scope: RequestScope<TokenCount>,
): Promise<PassedAnswer> {
  const { tenant, waitUntil } = caller;
  const { hint, beginning, most, hidesUsage, units, endUser = {}, ...request } = passed;
  const takesNone = AT_ROOT.has(name);
  const asked = {
    model: passed.model ?? "unknown",
    kind: KINDS[name] ?? ("completions" as const),
    most: takesNone ? () => NO_TOKENS : most,
  };
  const admission = await admitPassed(caller, asked, endUser);
  if (admission) scope.admit(admission);
  let answer: PassedAnswer;
  try {
    const path = takesNone ? `//${name}` : `/${name}`;
    const affinity = { isRooted: false, hint, beginning };
    answer = await passOn({ ...request, path, tenant, affinity }, imageConfigFor(caller, name, passed.model), caller);
  } catch (error) {
    // The model server may have worked on it: its answer names no usage then.
    const hasWorked = caller.signal.aborted || (error instanceof ApiError && error.code === "upstream_timeout");
    if (!takesNone && hasWorked) scope.end(most());
    throw error;
  }
  const running = scope.move();
  if (!admission || !answer.body) {
    waitUntil(answer.ended.finally(() => running.end(NO_TOKENS)));
    return answer;
  }
  waitUntil(answer.ended.finally(() => running.releasePermits()));
  const counted = { type: answer.type, hidesUsage, reserved: most };
  const usedOf = (used: TokenCount) => (takesNone ? NO_TOKENS : { ...used, ...(units !== undefined && { units }) });
  return { ...answer, body: countedBody(answer.body, counted, (used) => running.end(usedOf(used))) };
}

const NO_TOKENS: TokenCount = { input: 0, cached: 0, output: 0 };

/** Throws the 400 of a field that only the operator may open. */
function checkFields({ config }: Caller, has: (field: string) => boolean): void {
  for (const field of VLLM_EXTRAS) {
    if (has(field) && !config.vllmExtras.has(field)) throw notOpen(field, "VLLM_EXTRAS");
  }
  for (const field of OPERATORS_FIELDS) {
    if (has(field) && !config.vllmExtraFields.includes(field)) throw notOpen(field, "VLLM_EXTRA_FIELDS");
  }
}

/** The model's name at vLLM; undefined where none is named. `session` names what the request belongs with, where anything does. Throws the 403 of a model that the caller's key does not have. */
function modelOf(
  { config, identity, tenant }: Caller,
  asked: unknown,
  session: string | undefined,
): string | undefined {
  if (asked != null && (typeof asked !== "string" || asked.length > MAX_MODEL_LENGTH)) {
    throw invalidRequest("model", "Expected the name of a model.", "invalid_type");
  }
  const name = allowedModel(asked as string | null | undefined, identity.policy?.models ?? []) ?? asked;
  if (typeof name !== "string") return undefined;
  return routed(name, config, `${tenant}\n${session ?? Math.random()}`).upstream;
}

/** How the prompt of a chat or a completion begins, hashed; undefined of what has no prompt. */
function beginningOf({ system, tools, messages, prompt }: JsonObject): string | undefined {
  const first = Array.isArray(messages) ? messages.slice(0, FIRST_MESSAGES) : prompt;
  if (first === undefined) return undefined;
  const text = (value: unknown) => (value === undefined ? "" : JSON.stringify(value).slice(0, MAX_BEGINNING));
  return hashText([system, tools, first].map(text).join("\0"));
}

/** Fields in which vLLM's requests hold the address of something that it fetches. */
const URL_FIELDS = new Set(["audio_url", "image_url", "url", "video_url"]);

/** Every address in a request, with the path of its field. Data URLs are fetched from nowhere. */
export function urlsIn(body: JsonObject): { param: string; url: string }[] {
  const urls: { param: string; url: string }[] = [];
  /** The way to where the search is. */
  const keys: (string | number)[] = [];
  const visit = (value: unknown, isUrl: boolean): void => {
    if (typeof value === "string") {
      if (isUrl && !/^data:/i.test(value)) urls.push({ param: pathOf(keys), url: value });
      return;
    }
    if (typeof value !== "object" || value === null) return;
    const isList = Array.isArray(value);
    for (const key in value) {
      keys.push(isList ? Number(key) : key);
      visit((value as Record<string, unknown>)[key], isList ? isUrl : URL_FIELDS.has(key));
      keys.pop();
    }
  };
  visit(body, false);
  return urls;
}

function pathOf(keys: readonly (string | number)[]): string {
  return keys.map((key, index) => (typeof key === "number" ? `[${key}]` : index === 0 ? key : `.${key}`)).join("");
}
