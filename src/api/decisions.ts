import { forEachAtOnce } from "@responses-edge/bounded-io/long-work";
import { overLostConnections } from "@responses-edge/engines/lost-connection";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { InputPart } from "@responses-edge/responses-api/items/parts";
import type { Item } from "@responses-edge/responses-api/items/registry";
import {
  answerOf,
  joined,
  lettersOf,
  MAX_OPTIONS,
  optionList,
  optionsOf,
  probabilitiesOf,
} from "@responses-edge/responses-api/platform/decision-options";
import {
  type Decision,
  decisionQuestions,
  decisionRequest,
  type Question,
} from "@responses-edge/responses-api/platform/decisions";
import type { Usage } from "@responses-edge/responses-api/response";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { Engine, Prompt } from "@responses-edge/turn/contract/engine";
import { tokensOf } from "@responses-edge/turn/contract/measurements";
import { NO_USAGE } from "@responses-edge/turn/response";
import { assemblePrompt } from "../assembly/assemble-turn.ts";
import { tellRequest } from "../telemetry/content-log.ts";
import { acceptCreate, prepareTurn } from "./creation.ts";
import { RequestScope } from "./request-scope.ts";
import type { Caller } from "./transport.ts";

/** The beginning of the answer, which the model continues. A model that reasons first would begin with its reasoning. */
const OPENING = "Answer:";

/** The model's choice is its first token. `top_logprobs` gives the alternatives. */
const ANSWER_FIELDS = {
  max_output_tokens: 1,
  top_logprobs: 20,
  include: ["message.output_text.logprobs"],
  temperature: 1,
} satisfies Partial<CreateRequest>;

/**
 * Answers questions about an input with probabilities (openai 7.59 `Decision`). Each question is put to the model at the end of
 * the same prompt, whose prefix is in the model server's cache; its answer is the log probabilities of one token. Stores nothing.
 * Throws the ApiErrors of an invalid create, the 400 of a model that gives no log probabilities, and as the upstream does.
 */
export async function decide(caller: Caller, body: unknown): Promise<Decision> {
  using scope = RequestScope.open(caller);
  const { questions } = parse(decisionQuestions, body);
  const prompts = questions.reduce((sum, question) => sum + promptsFor(optionsOf(question).length), 0);
  const creation = await acceptCreate(scope, caller, body, { schema: decisionRequest, makesTurn: false, prompts });
  const { modelAccess, abort, measured } = creation;
  const { spec, past } = await prepareTurn(creation, undefined);
  const { config, onAttempt } = caller;
  const host = { config, modelAccess, access: {}, signal: abort.signal, onAttempt, measured };
  const { engine, prompt } = await assemblePrompt(spec, past, host);
  const { continues } = await modelAccess.upstream.learnDialect(abort.signal);
  // gpt-oss is asked by completions, which continue an opened message. It has no effort `none`.
  const isHarmony = spec.model.engine === "harmony";
  const model = new Decider(engine, prompt, {
    effort: isHarmony ? "low" : "none",
    hasOpening: isHarmony || continues !== "never",
    signal: abort.signal,
  });
  const answers: Decision["answers"] = [];
  let status: "failed" | "completed" = "failed";
  try {
    await forEachAtOnce([...questions.entries()], async ([index, question]) => {
      answers[index] = answerOf(question, await model.probabilities(question, optionsOf(question)));
    });
    status = "completed";
  } finally {
    const spent = { usage: model.usage, deltas: 0, rounds: 0 };
    const head = JSON.stringify({ model: spec.model.name });
    scope.end({ outcome: { status }, closed: { spent, head }, kind: "decisions" });
    const replica = modelAccess.upstream.server.config.name;
    measured.asked = { model: spec.model, replica, tokens: tokensOf(model.usage) };
  }
  const { input, createdAt } = creation;
  const said = { model: spec.model.name, input: { input, questions }, output: answers, createdAt };
  tellRequest(caller, { endpoint: "POST /v1/decisions", ...said, status: "completed" });
  return { model: spec.model.name, answers, usage: shownUsage(model.usage) };
}

/** How often a model is asked for a question with this many options. */
function promptsFor(options: number): number {
  if (options <= MAX_OPTIONS) return 1;
  const groups = Math.ceil(options / MAX_OPTIONS);
  return groups + promptsFor(groups);
}

/** How a model is asked. */
interface Asking {
  effort: "low" | "none";
  /** The answer is opened for the model. If it is not, a grammar allows nothing but a letter. */
  hasOpening: boolean;
  signal: AbortSignal;
}

/** Asks a model, at the end of one prompt, which of some options is right. */
class Decider {
  readonly #engine: Engine;
  readonly #prompt: Prompt;
  readonly #asking: Asking;
  readonly usage: Usage = structuredClone(NO_USAGE);

  constructor(engine: Engine, prompt: Prompt, asking: Asking) {
    this.#engine = engine;
    this.#prompt = prompt;
    this.#asking = asking;
  }

  /**
   * The probabilities of a question's options; undefined where the model chooses none. More options than one request
   * holds are asked in groups.
   */
  async probabilities(question: Question, options: readonly string[]): Promise<number[] | undefined> {
    if (options.length <= MAX_OPTIONS) return this.#ask(question, options);
    const groups: number[][] = [];
    for (let at = 0; at < options.length; at += MAX_OPTIONS) {
      const group = await this.#ask(question, options.slice(at, at + MAX_OPTIONS));
      if (!group) return undefined;
      groups.push(group);
    }
    const bestOf = (group: readonly number[], index: number) =>
      options[index * MAX_OPTIONS + group.indexOf(Math.max(...group))] ?? "";
    const best = await this.probabilities(question, groups.map(bestOf));
    return best && joined(groups, best);
  }

  async #ask({ instructions }: Question, options: readonly string[]): Promise<number[] | undefined> {
    const { effort, hasOpening, signal } = this.#asking;
    const list = optionList(options);
    const content: InputPart[] =
      typeof instructions === "string"
        ? [{ type: "input_text", text: `${instructions}\n\n${list}` }]
        : [...instructions.map(withDetail), { type: "input_text", text: list }];
    const question: Item = { type: "message", role: "user", status: "completed", content };
    const text = { type: "output_text" as const, text: OPENING, annotations: [], logprobs: [] };
    const opening: Item = { type: "message", role: "assistant", status: "incomplete", content: [text] };
    const items = [...this.#prompt.items, question, ...(hasOpening ? [opening] : [])];
    const bound = hasOpening ? {} : { structured_outputs: { choice: lettersOf(options.length) } };
    const request = { ...this.#prompt.request, ...ANSWER_FIELDS, ...bound, reasoning: { effort } };
    const asked: Prompt = { ...this.#prompt, items, request, isUnwatched: true };
    const deltas = await overLostConnections(() => this.#engine.generate(asked, signal), signal);
    let probabilities: number[] | undefined;
    let hasText = false;
    for await (const batch of deltas) {
      for (const delta of batch) {
        if (delta.kind === "usage") this.#add(delta.usage);
        if (delta.kind !== "text") continue;
        hasText = true;
        const [first] = delta.logprobs ?? [];
        if (first) probabilities ??= probabilitiesOf(first, options.length) ?? [];
      }
    }
    if (hasText && !probabilities) {
      const message = "The server of this model gives no log probabilities, which decisions need.";
      throw invalidRequest("model", message, "unsupported_parameter");
    }
    return probabilities?.length ? probabilities : undefined;
  }

  #add({ input_tokens, input_tokens_details: { cached_tokens }, output_tokens }: Usage): void {
    this.usage.input_tokens += input_tokens;
    this.usage.input_tokens_details.cached_tokens += cached_tokens;
    this.usage.output_tokens += output_tokens;
    this.usage.total_tokens += input_tokens + output_tokens;
  }
}

type InstructionPart = Exclude<Question["instructions"], string>[number];

function withDetail(part: InstructionPart): InputPart {
  return part.type === "input_image" ? { ...part, detail: part.detail ?? "auto" } : part;
}

function shownUsage({ input_tokens, input_tokens_details, output_tokens, total_tokens }: Usage): Decision["usage"] {
  return {
    input_tokens,
    input_tokens_details: { cache_write_tokens: 0, cached_tokens: input_tokens_details.cached_tokens },
    output_tokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens,
  };
}
