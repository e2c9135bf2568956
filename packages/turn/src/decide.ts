import { ClientTools } from "@responses-edge/responses-api/client-tools";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import { ApiError } from "@responses-edge/responses-api/errors";
import {
  clientCallOf,
  type Item,
  isClientCall,
  isServerCall,
  isWord,
  type OutputItem,
} from "@responses-edge/responses-api/items/registry";
import { mustCall } from "@responses-edge/responses-api/tools";
import { answerFormat } from "./answer-format.ts";
import type { FinishReason, ModelDelta, Prompt, PromptChange, RawMessage } from "./engine.ts";
import { roundItems, spentTokens, type TurnState } from "./state.ts";

/**
 * Decides what a turn does next, and how it ends. Nothing here waits for anything or changes anything: a turn does a step, tells what has
 * come of it (`Done`), and asks again. `disregarded` tells whether the output is what was asked for.
 */

/** How a turn ended. */
export type Outcome =
  | { status: "completed" }
  | { status: "incomplete"; reason: "max_output_tokens" | "content_filter" | "steered" }
  | { status: "cancelled" }
  | { status: "failed"; error: ApiError };

export type Step =
  /** Lists the tools of MCP servers, and runs the calls that the client has approved. */
  | { kind: "prepare" }
  /** Compacts the prompt, if it must be. */
  | { kind: "compact" }
  /** Asks the model; `again` where its last answer in this round cannot be used. */
  | { kind: "generate"; again?: Again }
  /** Goes on with a generation that was cut off with its process. */
  | { kind: "resume" }
  /** Runs the calls that the model has made. The next round begins with `again`: they tell the model what was wrong. */
  | { kind: "answer"; again: readonly RawMessage[] }
  /** Settles the turn. */
  | { kind: "end"; outcome: Outcome };

/** How the model is asked again in a round. */
export type Again =
  /** With a change that the engine has made. `isCounted`: the model was at fault. */
  | { change: PromptChange; isCounted: boolean }
  /** Its answer is taken back, and it is told which field that does not keep to (`Compliance`). */
  | { disregarded: string };

/** Why a turn may compact: its client asks for it and for nothing else, or lets it be done when it must. */
export type CompactionKind = "asked" | "managed";

/** The facts of a turn that hold from its beginning to its end. */
export interface TurnFacts {
  compaction: CompactionKind | undefined;
  /** `max_output_tokens`. */
  maxOutputTokens: number;
  /** Nobody sees the output before the turn has ended, so that an answer can be taken back. */
  isUnseen: boolean;
}

/** The end of a generation that has no answer. */
export type NoAnswer = Extract<ModelDelta, { kind: "broken" | "ask_again" }>;

/** The result of a step. */
export type Done =
  /** The turn begins, or goes on after its process has died. */
  | { did: "begin"; mustPrepare: boolean }
  | { did: "prepare" }
  /** `fault` prevents the turn from going on. */
  | { did: "compact"; fault: Outcome | undefined }
  | GenerationDone
  /** `isFull`: nothing more can be kept. */
  | ({ did: "answer"; waitsForClient: boolean; isFull: boolean } & Compliance);

/** The comparison of the output so far with the request. */
interface Compliance {
  /** Says which field a turn that ended now would not keep to (`disregarded`); undefined where it keeps to all. */
  disregarded: string | undefined;
}

export interface GenerationDone extends Compliance {
  did: "generate";
  /** The outcome that has ended the generation before its end. */
  fault: Outcome | undefined;
  finish: FinishReason | undefined;
  noAnswer: NoAnswer | undefined;
  /** Calls that this server has to answer. */
  calls: number;
  /** Something is left that only the client can answer. */
  waitsForClient: boolean;
  /** The model has called tools in vain, which stand in the prompt: asked without them, it may answer. */
  mayAnswerWithoutTools: boolean;
  /** Output tokens of the turn. */
  spentTokens: number;
}

/** How often in a row a turn asks its model again whose answer cannot be used. */
const MAX_ASKED_AGAIN = 3;

/** `isSteered`: the turn is not to ask its model for more, because another one answers what its user has said meanwhile. */
export function decide(state: TurnState, done: Done, facts: TurnFacts, isSteered = false): Step {
  const step = nextStep(state, done, facts);
  if (!isSteered) return step;
  const asksModel = step.kind === "compact" || step.kind === "generate" || step.kind === "resume";
  // It was broken off as by a limit.
  const isCut = done.did === "generate" && !done.fault && done.finish === "length";
  return asksModel || isCut ? { kind: "end", outcome: { status: "incomplete", reason: "steered" } } : step;
}

function nextStep(state: TurnState, done: Done, facts: TurnFacts): Step {
  switch (done.did) {
    case "begin":
      // A compaction alone needs no tools.
      return done.mustPrepare && facts.compaction !== "asked" ? { kind: "prepare" } : firstStep(state, facts);
    case "prepare":
      return firstStep(state, facts);
    case "compact":
      if (done.fault) return { kind: "end", outcome: done.fault };
      return facts.compaction === "asked" ? { kind: "end", outcome: { status: "completed" } } : { kind: "generate" };
    case "generate":
      return afterGeneration(state, done, facts);
    case "answer":
      if (done.waitsForClient) return complete(done);
      if (done.isFull || spentTokens(state) >= facts.maxOutputTokens) return outOfTokens();
      return { kind: facts.compaction && !state.round.compacted ? "compact" : "generate" };
  }
}

function firstStep(state: TurnState, facts: TurnFacts): Step {
  const { answering, output, round } = state;
  if (facts.compaction === "asked" && round.compacted) return { kind: "end", outcome: { status: "completed" } };
  if (facts.compaction === "asked") return { kind: "compact" };
  if (answering) return { kind: "answer", again: [] };
  const hasSpoken = output.slice(round.firstItem).some(isWord) || round.sampled !== undefined;
  if (hasSpoken) return { kind: "resume" };
  return { kind: facts.compaction && !round.compacted ? "compact" : "generate" };
}

/** The end of a generation, compared with what was asked for: no answer is called completed that is none. */
function afterGeneration({ askedAgain }: TurnState, done: GenerationDone, facts: TurnFacts): Step {
  const { fault, finish, noAnswer, calls, waitsForClient } = done;
  if (fault) return { kind: "end", outcome: fault };
  if (finish === "length") return outOfTokens();
  if (finish === "content_filter") return { kind: "end", outcome: { status: "incomplete", reason: "content_filter" } };
  const isCounted = noAnswer?.why !== undefined;
  const mayAskAgain = !isCounted || askedAgain < MAX_ASKED_AGAIN;
  if (noAnswer?.kind === "ask_again" && mayAskAgain) {
    if (done.spentTokens >= facts.maxOutputTokens) return outOfTokens();
    return { kind: "generate", again: { change: noAnswer.change, isCounted } };
  }
  const again = noAnswer?.kind === "broken" && mayAskAgain ? noAnswer.messages : [];
  if (calls > 0 || again.length > 0) return { kind: "answer", again };
  if (noAnswer?.why !== undefined && !waitsForClient) return { kind: "end", outcome: askedInVain(noAnswer.why) };
  // Without the tools the model is asked once: one that calls them all the same would do so for ever.
  if (done.mayAnswerWithoutTools) return { kind: "answer", again };
  const { disregarded } = done;
  if (disregarded === undefined || !facts.isUnseen || askedAgain >= MAX_ASKED_AGAIN) return complete(done);
  return done.spentTokens >= facts.maxOutputTokens ? outOfTokens() : { kind: "generate", again: { disregarded } };
}

/** Ends a turn whose output is whole: as completed where it is what was asked for. */
function complete({ disregarded }: Compliance): Step {
  if (disregarded === undefined) return { kind: "end", outcome: { status: "completed" } };
  return {
    kind: "end",
    outcome: failedBy(`The model server disregarded the request. Its answer does not keep to ${disregarded}.`),
  };
}

function outOfTokens(): Step {
  return { kind: "end", outcome: { status: "incomplete", reason: "max_output_tokens" } };
}

/** `why` says what of the request the answer does not keep to. */
function askedInVain(why: string): Outcome {
  return failedBy(`The model was asked again in vain: its answer is none that was asked for. It ends in ${why}`);
}

function failedBy(message: string): Outcome {
  return { status: "failed", error: new ApiError({ status: 502, message, code: "upstream_disregarded_request" }) };
}

/** The comparison of what a turn has put out with its request. A model server may ignore a field, or answer beside it. */

/**
 * Says which field of the request the output of a turn that ends now does not keep to, in words for the client; undefined
 * where it keeps to all. The turn's own request has the choice; the prompt of its last round has the tools that items have
 * brought. Text that a stop string may have cut, and the client's own regular expressions, grammars and structural tags are
 * not looked at.
 */
export function disregarded(
  { tool_choice: choice }: CreateRequest,
  { request, pluginTools }: Pick<Prompt, "request" | "pluginTools">,
  state: TurnState,
): string | undefined {
  const hasTools = request.tools != null || state.output.some(isClientCall);
  const mayBind = request.stop == null && (request.text?.format != null || request.structured_outputs != null);
  const wantsLogprobs = request.include?.includes("message.output_text.logprobs");
  if (!hasTools && !mayBind && !wantsLogprobs) return undefined;
  const final = finalText(roundItems(state));
  const fault = hasTools ? disregardedTools(choice, { request, pluginTools }, state, final?.text) : undefined;
  if (fault !== undefined || !final) return fault;
  const { text, hasLogprobs } = final;
  const format = mayBind ? answerFormat(request) : undefined;
  if (format && !format.mayAccept(text)) return format.fault;
  return wantsLogprobs && text !== "" && !hasLogprobs ? "'include': it has no log probabilities" : undefined;
}

/** The same of the calls of a turn, and of a final text that is one. */
function disregardedTools(
  choice: CreateRequest["tool_choice"],
  { request, pluginTools }: Pick<Prompt, "request" | "pluginTools">,
  state: TurnState,
  text: string | undefined,
): string | undefined {
  const tools = ClientTools.of(request.tools);
  let called = false;
  const named = choice == null ? undefined : tools.named(choice);
  for (const item of state.output) {
    if (state.superseded.has(item.id)) continue;
    if (isClientCall(item)) {
      if (item.status === "incomplete") continue;
      const name = clientCallOf(item as Item)?.flatName ?? item.type;
      const tool = tools.get(name);
      if (!tool) return `'tools': it calls '${name}', which was not offered`;
      called ||= !named || tool === named;
    } else called ||= !named && (isServerCall(item) || item.type === "mcp_approval_request");
  }
  const plugins = pluginTools?.functions ?? [];
  const { builtinFunctions = [], namespaces = {} } = pluginTools ?? {};
  const hasPlugins = plugins.length + builtinFunctions.length + Object.keys(namespaces).length > 0;
  if (choice != null && mustCall(choice) && !called && (hasPlugins || tools.offered(choice).length > 0)) {
    return `'tool_choice': it does not call ${named ? `the tool '${named.name}'` : "a tool"}`;
  }
  // Where nothing may be called, such a text is what the model has to say.
  const [, unread = ""] = (choice !== "none" && UNREAD_CALL.exec(text ?? "")) || [];
  if (unread !== "" && (tools.get(unread) || plugins.some(({ name }) => name === unread))) {
    return `'tools': its call of '${unread}' is text, because the model server reads no calls`;
  }
  return undefined;
}

/** A call as Hermes, Qwen and the models trained like them write it; the group is the name of its tool. */
const UNREAD_CALL = /^\s*<tool_call>\s*(?:\{\s*"name"\s*:\s*"|<function=)([\w.-]+)/;

/** The text that a round ends with; undefined where it ends in a refusal, or in a call for the client to answer. */
function finalText(items: readonly OutputItem[]): { text: string; hasLogprobs: boolean } | undefined {
  let message: Extract<OutputItem, { type: "message" }> | undefined;
  for (const item of items) {
    if (isClientCall(item) || item.type === "mcp_approval_request") return undefined;
    if (item.type === "message" && item.phase !== "commentary") message = item;
  }
  let text = "";
  let hasLogprobs = false;
  for (const part of message?.content ?? []) {
    if (part.type === "refusal") return undefined;
    if (part.type !== "output_text") continue;
    text += part.text;
    hasLogprobs ||= (part.logprobs?.length ?? 0) > 0;
  }
  return { text, hasLogprobs };
}
