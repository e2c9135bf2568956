import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, invalidRequest, responseNotFound } from "@responses-edge/responses-api/errors";
import { responseId, type TurnAddress, treeOf } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { ResponsePrompt } from "@responses-edge/responses-api/platform/response-prompt";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import type { Engine, Model, Prompt, PromptPart } from "@responses-edge/turn/contract/engine";
import { shownTiming } from "@responses-edge/turn/timing";
import { tenantCacheSalt } from "../assembly/affinity.ts";
import { assemblePrompt } from "../assembly/assemble-turn.ts";
import { ModelAccess } from "../assembly/model-access.ts";
import type { StoredResponse } from "../store/home/stored-response.ts";
import { Permits } from "../store/limits/permits.ts";
import { pastBefore, requestOf } from "./cache-diagnosis.ts";
import type { Caller } from "./transport.ts";

/** The prompt of a stored response, made again from what is stored. */

/** The longest time for it, in milliseconds. */
const MAX_MS = 10_000;

type Head = Omit<ResponseObject, "output">;

/** The prompt of the first round of a response, and the engine that has made it. */
interface Made {
  engine: Engine;
  prompt: Prompt;
  parts: PromptPart[];
}

/**
 * The prompt of a response's first round, made again: its messages and tools as the model server was sent them, and the text that its
 * chat template makes of them. Throws the 404 of a response that does not exist, the 400 of a deployment that hides reasoning, which
 * prompts have, and the 429 and 503 of memory permits.
 */
export async function promptOf(caller: Caller, address: TurnAddress): Promise<ResponsePrompt> {
  const { homes, config } = caller;
  if (config.hidesReasoning) {
    throw invalidRequest(null, "Prompts contain the model's reasoning, which this server hides.", "prompt_hidden");
  }
  const stored = await homes.ask(address.home, null, (home) => home.retrieve(address.turn));
  if (!stored) throw responseNotFound(responseId(address));
  const head = JSON.parse(stored.head) as Head;
  using permits = new Permits("text", caller, stored.head.length + stored.output.length);
  const signal = AbortSignal.any([caller.signal, AbortSignal.timeout(MAX_MS)]);
  const access = new ModelAccess(config, caller.tenant);
  access.inTree(treeOf(address));
  // Neither a history that was deleted nor a model server that is away is a fault of this request.
  const model = await access.resolve(head.model, signal).catch(() => undefined);
  const made = model && (await assembled(caller, address, { stored, head, model, access, permits, signal }));
  caller.signal.throwIfAborted();
  const { tools, messages, variables } = partsIn(made?.parts);
  const { input_messages: raw } = head;
  return {
    object: "response.prompt",
    server: serverOf(stored, head),
    model: model?.upstream ?? head.model,
    messages: (raw as Record<string, unknown>[] | undefined) ?? messages,
    tools: tools ?? head.tools,
    parameters: { ...parametersOf(head), ...(variables && { chat_template_kwargs: variables }) },
    ...(await renderedBy(made, raw, signal, () =>
      model?.engine === "harmony" ? "gateway" : access.upstream.server.config.name,
    )),
    raw: raw !== undefined,
  };
}

/** The prompt; undefined if its history is not there any more, or a model server that must be asked is away. Throws the 429 and 503 of permits. */
async function assembled(
  { tenant, past, config }: Caller,
  address: TurnAddress,
  of: { stored: StoredResponse; head: Head; model: Model; access: ModelAccess; permits: Permits; signal: AbortSignal },
): Promise<Made | undefined> {
  const { stored, head, model, access: modelAccess, permits, signal } = of;
  const all = await past.past([], address).catch(unlessUnexpected);
  if (!all) return undefined;
  // The prompt in parts, in the answer, and as it is rendered.
  permits.resize(4 * all.length);
  const spec = {
    ...address,
    request: requestOf(head, { model: head.model, input: [] } as unknown as CreateRequest),
    model,
    tenant,
    cacheSalt: tenantCacheSalt(tenant),
    affinity: { isRooted: true },
    createdAt: head.created_at * 1000,
  };
  const before = pastBefore(all, JSON.parse(stored.output) as Item[]);
  try {
    const host = { config, modelAccess, access: {}, signal, listsTools: false as const };
    const { engine, prompt } = await assemblePrompt(spec, before, host);
    return { engine, prompt, parts: await engine.parts(prompt, signal) };
  } catch (error) {
    return signal.aborted ? undefined : unlessUnexpected(error);
  }
}

function unlessUnexpected(error: unknown): undefined {
  if (!(error instanceof ApiError)) throw error;
}

/** The parts of a prompt as the answer has them: all of them are JSON texts, except an effort of gpt-oss. */
function partsIn(parts: readonly PromptPart[] | undefined) {
  const of = (kind: PromptPart["kind"]) =>
    parts?.filter((part) => part.kind === kind).map(({ text }) => JSON.parse(text) as Record<string, unknown>);
  const isChat = parts?.find(({ kind }) => kind === "effort")?.text.startsWith("{") === true;
  return { tools: of("tool"), messages: of("input") ?? null, variables: isChat ? of("effort")?.[0] : undefined };
}

/** The rendered prompt, and who renders it (`by`). That of kept raw messages with their tokens is in them. */
async function renderedBy(
  made: Made | undefined,
  raw: readonly object[] | undefined,
  signal: AbortSignal,
  by: () => string,
): Promise<Pick<ResponsePrompt, "rendered" | "rendered_by">> {
  const [first] = raw ?? [];
  if (first && "tokens" in first && "message" in first && typeof first.message === "string") {
    return { rendered: first.message, rendered_by: by() };
  }
  const text = made && (await textOf(made, signal).catch(() => undefined));
  if (text === undefined) return { rendered: null, rendered_by: null };
  return { rendered: text, rendered_by: by() };
}

async function textOf({ engine, prompt }: Made, signal: AbortSignal): Promise<string | undefined> {
  const rendered = await engine.rendered(prompt, signal);
  return rendered && engine.renderedText(rendered, prompt.model, signal);
}

/** The model server that was asked last; null if that is unknown. */
function serverOf({ keptTiming }: StoredResponse, { model }: Head): string | null {
  const timing = keptTiming === null ? null : shownTiming(keptTiming, { model, items: [] });
  return timing?.rounds.at(-1)?.server ?? null;
}

function parametersOf(head: Head): ResponsePrompt["parameters"] {
  const { temperature, top_p, presence_penalty, frequency_penalty, top_logprobs, max_output_tokens } = head;
  const { max_tool_calls, parallel_tool_calls, tool_choice, text, reasoning, truncation } = head;
  return {
    ...{ temperature, top_p, presence_penalty, frequency_penalty, top_logprobs, max_output_tokens },
    ...{ max_tool_calls, parallel_tool_calls, tool_choice, text, reasoning, truncation },
  };
}
