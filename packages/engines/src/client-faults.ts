import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { partsOf } from "@responses-edge/responses-api/items/registry";
import type { ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import { boundRules, strictByDefault } from "./offered-tools.ts";

/**
 * Faults that name a field of the client's, and come before an answer begins if vLLM allows it.
 *
 * vLLM compiles a grammar after it has accepted a request: a streamed answer is a 200 first, and the refusal is its
 * first event. So if a request has a client's grammar, the first word is waited for. Some schemas break vLLM (500)
 * instead of being refused: the prompt is then tried without them, for one token, to find out whether they are at
 * fault.
 *
 * This server has translated the grammar of a custom tool, and binds functions that are strict by default. A model
 * server that cannot take these grammars (an older one, or with another grammar compiler) is asked without: the model
 * still has them in the descriptions of its tools, and the calls are checked here.
 */

/** Tells whether a grammar that was made of the request binds the answer, so that it may be refused late. */
export function isBoundByClient({ asksForText, freeInputs, request }: Prompt): boolean {
  if (asksForText) return false;
  return grammarFields(request).length > 0 || isBoundHere({ freeInputs, request });
}

/** Tells whether this server makes grammars for the tools of a prompt. */
function isBoundHere({ request, freeInputs }: Pick<Prompt, "request" | "freeInputs">): boolean {
  if (request.tools == null || freeInputs) return false;
  return boundRules(request).size > 0 || strictByDefault({ request, freeInputs }).size > 0;
}

/** Has an engine generate. The faults that it throws name the client's fields; those of the answer are the engine's to name (`clientFault`). */
export async function generateWithClientFaults(
  prompt: Prompt,
  signal: AbortSignal,
  generate: (prompt: Prompt) => Promise<AsyncIterable<ModelDelta[]>>,
): Promise<AsyncIterable<ModelDelta[]>> {
  const { asksForText, request } = prompt;
  const { text, structured_outputs: outputs, tools } = request;
  const hasFormats = !asksForText && (text?.format != null || outputs != null || tools != null);
  const hasGrammar = hasFormats && grammarFields(request).length > 0;
  const isBound = hasFormats && isBoundHere(prompt);
  try {
    const answer = await generate(prompt);
    return hasGrammar || isBound ? await begin(answer) : answer;
  } catch (error) {
    if (!(error instanceof ApiError) || signal.aborted) throw error;
    if (isBound && (refusesGrammar(error) || error.code === "upstream_error")) {
      return generateWithClientFaults({ ...prompt, freeInputs: true }, signal, generate);
    }
    if (hasGrammar && error.code === "upstream_error" && (await servesWithoutGrammar(prompt, signal, generate))) {
      throw grammarError("The model server fails on this schema.", prompt.request);
    }
    throw clientFault(error, prompt.request);
  }
}

/** Tells whether the model server answers the same prompt without a grammar. */
async function servesWithoutGrammar(
  prompt: Prompt,
  signal: AbortSignal,
  generate: (prompt: Prompt) => Promise<AsyncIterable<ModelDelta[]>>,
): Promise<boolean> {
  const { text: _, structured_outputs: __, tools: ___, tool_choice: ____, ...free } = prompt.request;
  const request: CreateRequest = { ...free, max_output_tokens: 1, enable_response_messages: false };
  try {
    const trial = { ...prompt, request, pluginTools: undefined, spentTokens: 0 };
    for await (const deltas of await generate(trial)) if (deltas.length > 0) return true;
    return true;
  } catch (error) {
    if (signal.aborted) throw error;
    return false;
  }
}

/** A fault of a model server's that names the client's field. */
export function clientFault(error: ApiError, request: CreateRequest): ApiError {
  if (error.status !== 400 || error.code !== "invalid_request") return error;
  if (refusesGrammar(error)) {
    const fields = grammarFields(request);
    if (fields.length > 0) return grammarError(error.message, request);
    const tool = blame(error.message, toolFields(request));
    if (tool !== null) return invalidRequest(tool, clientMessage(error.message), error.code);
  }
  if (error.param !== null && error.param !== "input") return error;
  const param = mediaParam(error.message, request) ?? error.param;
  return invalidRequest(param, error.message, error.code);
}

/** Waits for the first deltas of an answer, or for its fault, which it throws. */
async function begin(answer: AsyncIterable<ModelDelta[]>): Promise<AsyncIterable<ModelDelta[]>> {
  const iterator = answer[Symbol.asyncIterator]();
  const first = await iterator.next();
  return (async function* () {
    try {
      for (let step = first; !step.done; step = await iterator.next()) yield step.value;
    } finally {
      await iterator.return?.();
    }
  })();
}

/** Names of fields: vLLM's 400s use other names than the client. */

/** Fields of vLLM's routes that clients of this API do not send, and the fields they come from. */
const CLIENT_NAMES: Record<string, string> = {
  input_tokens: "input",
  logprobs: "top_logprobs",
  max_completion_tokens: "max_output_tokens",
  max_tokens: "max_output_tokens",
  messages: "input",
  prompt: "input",
  reasoning_effort: "reasoning.effort",
  response_format: "text.format",
};

/** vLLM's `body.stop`, `messages[0].content` or `max_tokens` as a path of the request's; null stays null. */
export function clientParam(param: string | null | undefined): string | null {
  if (param == null || param === "") return null;
  const path = param.replace(/^body\./, "");
  const field = /^[A-Za-z_]+/.exec(path)?.[0] ?? "";
  const name = Object.hasOwn(CLIENT_NAMES, field) ? CLIENT_NAMES[field] : undefined;
  // Everything below is vLLM's own.
  if (name !== undefined) return name;
  return path.replace(/\.(\d+)(?=\.|$)/g, "[$1]");
}

/** A message of vLLM in the client's terms, without its own parameters. */
export function clientMessage(message: string): string {
  return message
    .replace(/ \(parameter=[^()]*\)$/, "")
    .replace(/'max_tokens' or 'max_completion_tokens'|\bmax_(completion_)?tokens\b/g, "max_output_tokens")
    .replace(/\bresponse_format\b/g, "text.format");
}

/** The error texts of vLLM, or the library behind it, for a grammar that it cannot compile. */
const GRAMMAR =
  /^grammar error|invalid grammar|grammar (specification|compil)|structural_tag|structured.?outputs?|guided.?(json|regex|grammar|decoding)|json.?schema|xgrammar|outlines|llguidance|unsupported by|invalid regex|regex parse/i;

/** Tells whether vLLM refuses a grammar that was made from the request. */
export function refusesGrammar({ status, message, param }: ApiError): boolean {
  return (
    status === 400 && (GRAMMAR.test(message) || /response_format|text\.format|structured_outputs/.test(param ?? ""))
  );
}

/** A field from which vLLM makes a grammar: its path, and its value. */
interface GrammarField {
  path: string;
  value: unknown;
}

/** The fields of a request that become vLLM's grammar. */
export function grammarFields(request: CreateRequest): GrammarField[] {
  const fields: GrammarField[] = [];
  const format = request.text?.format;
  if (format?.type === "json_schema") fields.push({ path: "text.format.schema", value: format.schema });
  for (const [kind, value] of Object.entries(request.structured_outputs ?? {})) {
    if (value != null) fields.push({ path: `structured_outputs.${kind}`, value });
  }
  const { tools = [], tool_choice: choice } = request;
  const isForced = choice != null && choice !== "auto" && choice !== "none";
  for (const [index, tool] of (tools ?? []).entries()) {
    if (tool.type !== "function" || (tool.strict !== true && !isForced)) continue;
    fields.push({ path: `tools[${index}].parameters`, value: tool.parameters });
  }
  return fields;
}

/** The schemas of all functions: llama.cpp makes its parser of calls of them, strict or not. */
function toolFields({ tools }: CreateRequest): GrammarField[] {
  return (tools ?? []).flatMap((tool, index) =>
    tool.type === "function" ? [{ path: `tools[${index}].parameters`, value: tool.parameters }] : [],
  );
}

/**
 * The 400 of a grammar, which names the field that it was made from: the only one, or the one that contains most of the
 * message's quotes. If several tools fit, it names their list.
 */
export function grammarError(message: string, request: CreateRequest): ApiError {
  return invalidRequest(blame(message, grammarFields(request)), clientMessage(message), "invalid_request");
}

function blame(message: string, fields: readonly GrammarField[]): string | null {
  if (fields.length === 1) return fields[0]?.path ?? null;
  const quoted = [...message.slice(0, MAX_READ).matchAll(/["'`/:]\s*([\w$.-]{2,64})/g)].map(([, word]) => word ?? "");
  const counts = fields.map(({ value }) => {
    const text = JSON.stringify(value) ?? "";
    return quoted.filter((word) => text.includes(word)).length;
  });
  const most = Math.max(...counts);
  const having = fields.filter((_, index) => most > 0 && counts[index] === most);
  if (having.length === 1) return having[0]?.path ?? null;
  const tools = fields.filter(({ path }) => path.startsWith("tools["));
  if (tools.length === fields.length && tools.length > 0) return "tools";
  return fields.find(({ path }) => !path.startsWith("tools["))?.path ?? null;
}

/** Characters of a message that are searched for words of a schema. */
const MAX_READ = 500;

/** vLLM's error texts for an image or a sound that the model, or the server, cannot take. */
const MEDIA = /multimodal|multi-modal|\bimages?\b|\baudios?\b|\bvideos?\b|media|\bPIL\b/i;

/** The first part of the input that is not text, for a fault that names none; otherwise `input`. */
export function mediaParam(message: string, { input }: CreateRequest): string | null {
  if (!MEDIA.test(message) || !Array.isArray(input)) return null;
  for (const [index, item] of input.entries()) {
    const { field, parts } = partsOf(item);
    const part = parts.findIndex(
      ({ type }) => type === "input_image" || type === "input_audio" || type === "input_video",
    );
    if (part >= 0) return `input[${index}].${field}[${part}]`;
  }
  return null;
}
