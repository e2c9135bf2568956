import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError } from "@responses-edge/responses-api/errors";
import {
  answeredId,
  calledId,
  clientCallOf,
  type Item,
  isAsyncCall,
  isClientCall,
  isCutCall,
  isServerCall,
  isWord,
  type OutputItem,
  programOf,
} from "@responses-edge/responses-api/items/registry";
import { ClientTools } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import { answerFormat } from "./contract/answer-format.ts";
import type { FinishReason, ModelDelta, Prompt, PromptChange, RawMessage } from "./contract/engine.ts";
import { roundItems, spentTokens, type TurnState } from "./state.ts";

/**
 * Decides what a turn does next, and how it ends. Nothing here waits or changes anything: a turn does a step, reports
 * the result (`Done`), and asks again. `disregarded` tells whether the output is what the request asked for.
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
  /** Asks the model; `again` if its last answer in this round is unusable. */
  | { kind: "generate"; again?: Again }
  /** Continues a generation that was cut off with its process. */
  | { kind: "resume" }
  /**
   * Runs the calls that the model has made. The next round begins with `again`: messages that tell the model its
   * mistake.
   */
  | { kind: "answer"; again: readonly RawMessage[] }
  /** Settles the turn. */
  | { kind: "end"; outcome: Outcome };

/** How the model is asked again in a round. */
export type Again =
  /** With a change that the engine has made. `isCounted`: the model made the mistake. */
  | { change: PromptChange; isCounted: boolean }
  /** Its answer is withdrawn, and it is told the field that the answer violates (`Compliance`). */
  | { disregarded: string };

/** Why a turn may compact: its client asks only for that, or allows it when it is needed. */
export type CompactionKind = "asked" | "managed";

/** The facts of a turn that hold from its beginning to its end. */
export interface TurnFacts {
  compaction: CompactionKind | undefined;
  /** `max_output_tokens`. */
  maxOutputTokens: number;
  /** Nobody sees the output before the turn has ended, so that an answer can be withdrawn. */
  isUnseen: boolean;
}

/** The end of a generation that has no answer. */
export type NoAnswer = Extract<ModelDelta, { kind: "broken" | "ask_again" }>;

/** The result of a step. */
export type Done =
  /** The turn begins, or continues after its process has died. */
  | { did: "begin"; mustPrepare: boolean }
  | { did: "prepare" }
  /** `fault` prevents the turn from continuing. */
  | { did: "compact"; fault: Outcome | undefined }
  | GenerationDone
  /** `isFull`: nothing more can be stored. */
  | ({ did: "answer"; waitsForClient: boolean; isFull: boolean } & Compliance);

/** The comparison of the output so far with the request. */
interface Compliance {
  /** The field that the turn would violate if it ended now (`disregarded`); undefined if it complies with all. */
  disregarded: string | undefined;
}

export interface GenerationDone extends Compliance {
  did: "generate";
  /** The outcome that ended the generation early. */
  fault: Outcome | undefined;
  finish: FinishReason | undefined;
  noAnswer: NoAnswer | undefined;
  /** Calls after which the model goes on: those that this server has to answer, and asynchronous ones. */
  calls: number;
  /** True if only the client can answer the rest. */
  waitsForClient: boolean;
  /** The model has called tools without success; the prompt shows them. Asked without tools, it may answer. */
  mayAnswerWithoutTools: boolean;
  /** Output tokens of the turn. */
  spentTokens: number;
}

/** How often in a row a turn asks its model again after an unusable answer. */
const MAX_ASKED_AGAIN = 3;

/** The step after `done`. */
export function decide(state: TurnState, done: Done, facts: TurnFacts): Step {
  switch (done.did) {
    case "begin":
      // A turn that only compacts needs no tools.
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

/**
 * The step of a turn that was steered: its user has sent another message, which the next turn answers. The turn ends
 * instead of asking its model again; calls that it has begun are still answered.
 */
export function steered(step: Step, done: Done): Step {
  const asksModel = step.kind === "compact" || step.kind === "generate" || step.kind === "resume";
  // Steering breaks a generation off in the same way as a token limit does.
  const isCut = done.did === "generate" && !done.fault && done.finish === "length";
  return asksModel || isCut ? { kind: "end", outcome: { status: "incomplete", reason: "steered" } } : step;
}

/** Tells whether the round has left something that its client must answer first: its own calls, and approvals. */
export function waitsForClient({ output, round }: TurnState): boolean {
  let answered: Set<string | undefined> | undefined;
  for (const item of output.slice(round.firstItem)) {
    if (item.type === "mcp_approval_request") return true;
    // An incomplete call is not one.
    if (!isClientCall(item) || isCutCall(item) || isAsyncCall(item)) continue;
    // This server runs programs: one without an output waits for a call of its own.
    if (item.type === "program") continue;
    answered ??= new Set(output.map((other) => answeredId(other as Item)));
    if (!answered.has(calledId(item as Item))) return true;
  }
  return false;
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

/**
 * The step after a generation, which is compared with the request: an answer that does not comply is never called
 * completed.
 */
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
  // Without tools the model is asked once. One that still calls them would do so for ever.
  if (done.mayAnswerWithoutTools) return { kind: "answer", again };
  const { disregarded } = done;
  if (disregarded === undefined || !facts.isUnseen || askedAgain >= MAX_ASKED_AGAIN) return complete(done);
  return done.spentTokens >= facts.maxOutputTokens ? outOfTokens() : { kind: "generate", again: { disregarded } };
}

/** Ends a turn with complete output: as completed if it complies with the request. */
function complete({ disregarded }: Compliance): Step {
  if (disregarded === undefined) return { kind: "end", outcome: { status: "completed" } };
  return {
    kind: "end",
    outcome: failedBy(`The model server disregarded the request. Its answer does not fulfil ${disregarded}.`),
  };
}

function outOfTokens(): Step {
  return { kind: "end", outcome: { status: "incomplete", reason: "max_output_tokens" } };
}

/** `why` names the field of the request that the answer violates. */
function askedInVain(why: string): Outcome {
  return failedBy(`The model was asked again, and still its answer does not fulfil the request. It ends in ${why}`);
}

function failedBy(message: string): Outcome {
  return failed(new ApiError({ status: 502, message, code: "upstream_disregarded_request" }));
}

export function failed(error: ApiError): Outcome {
  return { status: "failed", error };
}

/** Compares a turn's output with its request. A model server may ignore a field, or answer something else. */

/**
 * The field of the request that the output violates if the turn ends now, in words for the client; undefined if it
 * complies with all. The turn's own request has the choice of tools; the prompt of its last round has the loaded tools.
 * Text that a stop string may have cut, and the client's own regular expressions, grammars and structural tags are not
 * checked.
 */
export function disregarded(
  { tool_choice: choice }: CreateRequest,
  { request }: Pick<Prompt, "request">,
  state: TurnState,
): string | undefined {
  const hasTools = request.tools != null || state.output.some(isClientCall);
  const mayBind = request.stop == null && (request.text?.format != null || request.structured_outputs != null);
  const wantsLogprobs = request.include?.includes("message.output_text.logprobs");
  if (!hasTools && !mayBind && !wantsLogprobs) return undefined;
  const final = finalText(roundItems(state));
  const fault = hasTools ? disregardedTools(choice, request, state) : undefined;
  if (fault !== undefined || !final) return fault;
  const { text, hasLogprobs } = final;
  const format = mayBind ? answerFormat(request) : undefined;
  if (format && !format.mayAccept(text)) return format.fault;
  return wantsLogprobs && text !== "" && !hasLogprobs ? "'include': it has no log probabilities" : undefined;
}

/** The same for the calls of a turn. */
function disregardedTools(
  choice: CreateRequest["tool_choice"],
  request: CreateRequest,
  state: TurnState,
): string | undefined {
  const tools = ClientTools.of(request.tools);
  let called = false;
  const named = choice == null ? undefined : tools.named(choice);
  for (const item of state.output) {
    if (state.superseded.has(item.id)) continue;
    if (isClientCall(item)) {
      if (isCutCall(item)) continue;
      called ||= !named && programOf(item) !== undefined;
      // Programs call tools that the model may not call.
      if (programOf(item) !== undefined) continue;
      const name = clientCallOf(item as Item)?.flatName ?? item.type;
      const tool = tools.get(name);
      if (!tool) return `'tools': it calls '${name}', which was not offered`;
      called ||= !named || tool === named;
    } else if (item.type === "program_output") called ||= !named || named.tool.type === "programmatic_tool_calling";
    else called ||= !named && (isServerCall(item) || item.type === "mcp_approval_request");
  }
  if (mustCall(choice) && !called) {
    return `'tool_choice': it does not call ${named ? `the tool '${named.name}'` : "a tool"}`;
  }
  return undefined;
}

/** The final text of a round; undefined if the round ends in a refusal, or in a call for the client. */
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
