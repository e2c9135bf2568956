import { hashText } from "@responses-edge/engines/hash";
import { countedBody, type TokenCount } from "@responses-edge/engines/passed-usage";
import { refuseLargeFormats } from "@responses-edge/responses-api/bounded-formats";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import { tenantCacheSalt } from "../assembly/affinity.ts";
import { checkMediaUrls } from "../assembly/media-policy.ts";
import { type PassedAnswer, passOn, routed } from "../assembly/model-access.ts";
import type { PassthroughEndpoint } from "../config/index.ts";
import type { EndUserFields } from "../store/limits/allowances.ts";
import { PASSED_KINDS } from "../store/limits/ended-requests.ts";
import { admitPassed } from "./limit-reservation.ts";
import { loggedAnswer } from "./passed-content.ts";
import { checkImageFields, imageConfigFor, imageModel, imagesIn, isOfImages } from "./passed-images.ts";
import { urlsIn } from "./passed-urls.ts";
import { allowedModel, checkCap, notOpen, priorityOf } from "./policy.ts";
import { RequestScope } from "./request-scope.ts";
import type { Caller } from "./transport.ts";

export type { PassedAnswer } from "../assembly/model-access.ts";

/** vLLM's own endpoints. vLLM interprets a request; only the fields that reach beyond it are checked here. */

/** Endpoints for which vLLM keeps a prefix cache and takes a salt. Forms have no field for one. */
const SALTED = new Set<PassthroughEndpoint>([
  "chat/completions",
  "completions",
  "messages",
  "embeddings",
  "rerank",
  "score",
  "classify",
  "pooling",
  "v2/rerank",
]);

/** Endpoints whose streams report usage if `stream_options` asks for it. Streams of `messages` always do. */
const ASKED_FOR_USAGE = new Set<PassthroughEndpoint>(["chat/completions", "completions"]);

/** Endpoints that put each document to the model together with the query. */
const PAIRING = new Set<PassthroughEndpoint>(["rerank", "score", "v2/rerank"]);

/** Endpoints that generate token by token, and the fields that limit them. This server sets the first one. */
const OUTPUT_LIMITS: Partial<Record<PassthroughEndpoint, readonly string[]>> = {
  "chat/completions": ["max_completion_tokens", "max_tokens"],
  completions: ["max_tokens", "max_completion_tokens"],
  messages: ["max_tokens"],
  "audio/transcriptions": ["max_completion_tokens"],
  "audio/translations": ["max_completion_tokens"],
};

/** Endpoints that vLLM has at its root. */
export const AT_ROOT: ReadonlySet<PassthroughEndpoint> = new Set([
  "tokenize",
  "detokenize",
  "classify",
  "pooling",
  "v2/rerank",
]);

/** Endpoints that ask no model, and so use no tokens. */
const WITHOUT_MODEL: ReadonlySet<PassthroughEndpoint> = new Set([
  "tokenize",
  "detokenize",
  "messages/count_tokens",
  "chat/completions/render",
  "responses/render",
]);

/** Fields of any version of vLLM, and of Anthropic's API, that constrain the output. */
const FORMATS = [
  ...["guided_choice", "guided_grammar", "guided_json", "guided_regex", "output_config", "response_format"],
  ...["structural_tag", "structured_outputs", "tools"],
] as const;

/** The longest name of a model. UTF-16 units. */
const MAX_MODEL_LENGTH = 1_024;

/** The part of a request's beginning that is hashed to find requests that belong together. UTF-16 units. */
const MAX_BEGINNING = 4_096;

/** Beside the limits of output: how many answers a request asks for. */
const ANSWERS = ["n", "best_of"] as const;

/** How many messages there are before the model's first answer. */
const FIRST_MESSAGES = 2;

/** Passes on a parsed JSON request. Throws the 4xx of fields that are not opened, and as vLLM does. */
export async function passJson(caller: Caller, name: PassthroughEndpoint, body: unknown): Promise<PassedAnswer> {
  if (!isJsonObject(body)) throw invalidRequest(null, "The body must be a JSON object.", "invalid_type");
  const { config, tenant, signal } = caller;
  using scope = RequestScope.open<TokenCount>(caller);
  for (const [field, variable] of config.closedFields) if (body[field] != null) throw notOpen(field, variable);
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
  const asked = isStream && ASKED_FOR_USAGE.has(name) ? usageAsked(body) : undefined;
  const sent: JsonObject = { ...body, ...limits, ...(asked && { stream_options: asked.options }) };
  if (model !== undefined) sent.model = model;
  if (isOfImages(name)) sent.response_format = "b64_json";
  if (SALTED.has(name)) sent.cache_salt = tenantCacheSalt(tenant, salt);
  const passed = {
    input: body,
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

/** The end user in the fields of OpenAI's and of Anthropic's endpoints. */
function endUserIn({ safety_identifier: identifier, user, metadata }: JsonObject): EndUserFields {
  const ofMessages = isJsonObject(metadata) ? metadata.user_id : undefined;
  const names = [identifier, user, ofMessages].filter((name) => typeof name === "string" && name !== "");
  return { safety_identifier: names[0] as string | undefined };
}

/** The `stream_options` that make a stream report its usage. `isOurs`: the client has not asked for that. */
function usageAsked({ stream_options: options }: JsonObject): { options: JsonObject; isOurs: boolean } {
  if (options != null && !isJsonObject(options)) {
    throw invalidRequest("stream_options", "Expected an object.", "invalid_type");
  }
  if (options?.include_usage) return { options, isOurs: false };
  // vLLM takes it only together with `include_usage`.
  return { options: { ...options, include_usage: true, continuous_usage_stats: false }, isOurs: true };
}

/** The output limit and the priority that the caller's key adds to a request. Throws the 400s of a request that exceeds them. */
function limitsOf({ identity, config }: Caller, name: PassthroughEndpoint, body: JsonObject): JsonObject {
  const fields = OUTPUT_LIMITS[name];
  if (!fields) return {};
  const { policy } = identity;
  const cap = policy?.maxOutputTokens;
  // vLLM reads a number in a string as that number. Fields with limits must be real numbers.
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

/** Approximate tokens that the model will read. */
function mostInput(name: PassthroughEndpoint, body: JsonObject): number {
  const all = estimateTokens(body);
  if (!PAIRING.has(name)) return all;
  const lists = Object.values(body).filter((value) => Array.isArray(value));
  const documents = lists.toSorted((one, other) => other.length - one.length)[0];
  if (!documents) return all;
  // The query is read again for each document after the first.
  return all + (documents.length - 1) * Math.max(0, all - estimateTokens(documents));
}

/** The most tokens of all answers to all prompts. The server decides between two limits: the larger is reserved. */
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

/** Passes a form on. `type` has its boundary. Throws the 4xx of an invalid form or unopened fields, and as vLLM does. */
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
  for (const [field, variable] of config.closedFields) if (form.has(field)) throw notOpen(field, variable);
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
  const hidesUsage = isStream && !formFlag(form, "stream_include_usage");
  if (hidesUsage) {
    form.set("stream_include_usage", "true");
    form.delete("stream_continuous_usage_stats");
  }
  // Only the model knows how long a recording is.
  const most = () => ({ input: 0, cached: 0, output: cap ?? config.keys.reservedOutputTokens });
  const input = textsIn(form);
  const passed = { input, model, hint: clientSession, beginning: undefined, isStream, hidesUsage, most };
  return await pass(caller, name, { ...passed, ...(await writtenForm(form)) }, scope);
}

/** Writes the form anew, so that the model server reads exactly what was checked here. */
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
  const input = textsIn(form);
  const endUser = endUserIn(input);
  const about = { input, model, hint: caller.clientSession, beginning: undefined, endUser };
  const units = imagesIn(name, form.get("n"));
  const passed = { ...about, isStream: false, hidesUsage: false, most, units, ...(await writtenForm(form)) };
  return await pass(caller, name, passed, scope);
}

/** Throws the 400 of a field that is not a number. */
function formNumber(form: FormData, field: string): number | undefined {
  const [text, ...others] = form.getAll(field);
  if (text === undefined) return undefined;
  if (others.length === 0 && typeof text === "string" && /^\d{1,15}$/.test(text)) return Number(text);
  throw noNumber(field);
}

function noNumber(field: string): ApiError {
  return invalidRequest(field, `Invalid type for '${field}': expected a number.`, "invalid_type");
}

/** Throws the 400 of a field other than true or false. vLLM takes many words for both. */
function formFlag(form: FormData, field: string): boolean {
  const [text = "false", ...others] = form.getAll(field);
  if (others.length === 0 && (text === "true" || text === "True")) return true;
  if (others.length === 0 && (text === "false" || text === "False" || text === "")) return false;
  throw invalidRequest(field, `Invalid type for '${field}': expected true or false.`, "invalid_type");
}

/** The fields of a form that are texts. */
function textsIn(form: FormData): JsonObject {
  return Object.fromEntries([...form].filter(([, value]) => typeof value === "string"));
}

interface Passed {
  /** The request as its client has sent it, for the log of contents. */
  input: JsonObject;
  body: string | Uint8Array<ArrayBuffer>;
  contentType?: string | undefined;
  model: string | undefined;
  hint: string | undefined;
  beginning: string | undefined;
  isStream: boolean;
  /** This server, not the client, has asked the stream to report usage. */
  hidesUsage: boolean;
  /** The most tokens that the request takes. */
  most: () => TokenCount;
  /** The images that it asks for. */
  units?: number | undefined;
  /** Forms name no end user. */
  endUser?: EndUserFields;
}

/** Asks within the caller's limits. The answer takes over what `scope` owns until its bytes have ended. */
async function pass(
  caller: Caller,
  name: PassthroughEndpoint,
  passed: Passed,
  scope: RequestScope<TokenCount>,
): Promise<PassedAnswer> {
  const { tenant, waitUntil, observation, signal } = caller;
  const { input, hint, beginning, most, hidesUsage, units, endUser = {}, ...request } = passed;
  const createdAt = Date.now();
  const takesNone = WITHOUT_MODEL.has(name);
  const isAtRoot = AT_ROOT.has(name);
  const asked = {
    model: passed.model ?? "unknown",
    kind: PASSED_KINDS[name] ?? ("completions" as const),
    most: takesNone ? () => NO_TOKENS : most,
  };
  scope.admit(await admitPassed(caller, asked, endUser));
  let answer: PassedAnswer;
  try {
    const path = isAtRoot ? `//${name}` : `/${name}`;
    const affinity = { isRooted: false, hint, beginning };
    const config = imageConfigFor(caller, name, passed.model);
    const endpoint = `POST ${isAtRoot ? "" : "/v1"}/${name}`;
    const logged = { endpoint, model: passed.model, input, createdAt, hasText: name in OUTPUT_LIMITS };
    answer = loggedAnswer(caller, logged, await passOn({ ...request, path, tenant, affinity }, config, caller));
  } catch (error) {
    // The model server may have worked on the request, and its answer has no usage then.
    const hasWorked = signal.aborted || (error instanceof ApiError && error.code === "upstream_timeout");
    if (!takesNone && hasWorked) scope.end(most());
    throw error;
  }
  const running = scope.move();
  const measured = observation?.measured.asked;
  if (measured) measured.replica = answer.server;
  const over = Promise.withResolvers<void>();
  if (observation) waitUntil(observation.streamsUntil(over.promise));
  const end = (used: TokenCount) => {
    running.end(used);
    observation?.know({ hasClientLeft: signal.aborted });
    over.resolve();
  };
  if (!answer.body) {
    waitUntil(answer.ended.finally(() => end(NO_TOKENS)));
    return answer;
  }
  waitUntil(answer.ended.finally(() => running.releasePermits()));
  const counted = { type: answer.type, hidesUsage, reserved: most };
  const usedOf = (used: TokenCount) => (takesNone ? NO_TOKENS : { ...used, ...(units !== undefined && { units }) });
  const body = countedBody(answer.body, counted, (told) => {
    const used = usedOf(told);
    answer.spent(used);
    if (measured) measured.tokens = { reasoning: 0, ...used };
    end(used);
  });
  return { ...answer, body };
}

const NO_TOKENS: TokenCount = { input: 0, cached: 0, output: 0 };

/**
 * The model's name at vLLM; undefined if the request names none. Telemetry gets both names. `session` identifies the requests
 * that belong together, if there is one. Throws the 403 of a model that the caller's key does not have.
 */
function modelOf(
  { config, identity, tenant, observation }: Caller,
  asked: unknown,
  session: string | undefined,
): string | undefined {
  if (asked != null && (typeof asked !== "string" || asked.length > MAX_MODEL_LENGTH)) {
    throw invalidRequest("model", "Expected the name of a model.", "invalid_type");
  }
  const name = allowedModel(asked as string | null | undefined, identity.policy?.models ?? []) ?? asked;
  if (typeof name !== "string") return undefined;
  const { upstream } = routed(name, config, `${tenant}\n${session ?? Math.random()}`);
  if (observation) observation.measured.asked = { model: { name, upstream } };
  return upstream;
}

/** Hash of the beginning of a chat's or completion's prompt; undefined for requests without a prompt. */
function beginningOf({ system, tools, messages, prompt }: JsonObject): string | undefined {
  const first = Array.isArray(messages) ? messages.slice(0, FIRST_MESSAGES) : prompt;
  if (first === undefined) return undefined;
  const text = (value: unknown) => (value === undefined ? "" : JSON.stringify(value).slice(0, MAX_BEGINNING));
  return hashText([system, tools, first].map(text).join("\0"));
}
