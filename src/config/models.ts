import { ENGINES } from "@responses-edge/turn/contract/engine";
import { REPETITION_GUARDS } from "@responses-edge/turn/repetition";
import { z } from "zod";
import { fallbackNames, routeEntry } from "./routes.ts";
import { flag, jsonMap, listed, listText, ratio, setOf, someOf, urlPrefixes } from "./values.ts";
import { type Section, variable } from "./variable.ts";

/** The models: their names, the fields that clients may send them, and what clients see of them. */

/** vLLM's fields that this server checks, and that clients may send only if the operator opens them. */
export const VLLM_EXTRAS = [
  "priority",
  "kv_transfer_params",
  "chat_template_kwargs",
  "mm_processor_kwargs",
  "vllm_xargs",
] as const;
export type VllmExtra = (typeof VLLM_EXTRAS)[number];

/**
 * vLLM's fields that reach beyond their request, and that this server does not check: to other requests, other hosts,
 * or the internals of the server. Every endpoint refuses them, unless `VLLM_EXTRA_FIELDS` names them.
 */
export const OPERATORS_FIELDS = [
  ...["chat_template", "ec_transfer_params", "media_io_kwargs", "mm_payload", "prompt_embeds", "request_id"],
  ...["return_mm_kwargs", "session_id"],
] as const;

/** The fields that are closed to clients, with the variable by which the operator opens them. */
export function closedFields(
  extras: ReadonlySet<string> | readonly string[],
  extraFields: readonly string[],
): ReadonlyMap<string, string> {
  const closed = (fields: readonly string[], open: Iterable<string>, variable: string) =>
    [...new Set(fields).difference(new Set(open))].map((field): [string, string] => [field, variable]);
  // Neither variable opens the fields of the other one.
  return new Map([
    ...closed(VLLM_EXTRAS, extras, "VLLM_EXTRAS"),
    ...closed(OPERATORS_FIELDS, extraFields, "VLLM_EXTRA_FIELDS"),
  ]);
}

/** vLLM's own endpoints that may be opened to clients: their paths below `/v1/`, or below `/` for the last five. */
export const PASSTHROUGH_ENDPOINTS = [
  "chat/completions",
  "completions",
  "embeddings",
  "rerank",
  "score",
  "audio/transcriptions",
  "audio/translations",
  "images/generations",
  "images/edits",
  "messages",
  "messages/count_tokens",
  "chat/completions/render",
  "responses/render",
  "tokenize",
  "detokenize",
  "classify",
  "pooling",
  "v2/rerank",
] as const;
export type PassthroughEndpoint = (typeof PASSTHROUGH_ENDPOINTS)[number];

/** Fields that this server sets itself. Fields that a client adds must not override them. */
const OWN_FIELDS = new Set([
  ...["continue_final_message", "add_generation_prompt", "echo", "logprobs", "max_completion_tokens", "max_tokens"],
  ...["messages", "model", "n", "prompt", "prompt_embeds", "request_id", "response_format", "return_token_ids"],
  ...["return_tokens_as_token_ids", "stream", "stream_options", "suffix", "tool_choice", "tools", "use_beam_search"],
]);

/** Names of fields, separated by commas or white space. */
const extraFields = listText()
  .transform(listed)
  .refine((names) => names.every((name) => /^[a-z_]{1,64}$/.test(name)), "expected names such as min_tokens")
  .refine(
    (names) => names.every((name) => !OWN_FIELDS.has(name)),
    `expected none of the fields that this server sets: ${[...OWN_FIELDS].join(", ")}`,
  )
  .default([]);

const efforts = z.enum(["none", "minimal", "low", "medium", "high", "xhigh", "max"]);

/** vLLM takes 64-bit priorities; the sum of two of these stays far below. */
const priority = z.int().min(-1_000_000).max(1_000_000);

export const models = {
  title: "Models and their fields",
  variables: {
    routes: variable(
      "ROUTES",
      jsonMap(
        routeEntry,
        '{"chat":{"to":[{"model":"qwen3","weight":95},{"model":"qwen3-new","weight":5}],"fallbacks":["small"]}}',
      ),
      'JSON: which models answer for a name that clients say: one, or several with their shares of the conversations, and what answers in their place: `{"chat":{"to":[{"model":"qwen3","weight":95},{"model":"qwen3-new","weight":5}],"fallbacks":["small"],"context_window_fallbacks":["long"]}}` ([fleet.md](../fleet.md#routes)).',
    ),
    modelAliases: variable(
      "MODEL_ALIASES",
      jsonMap(z.string().min(1), '{"alias":"model"}'),
      'JSON: further names of models, such as `{"gpt-4o":"Qwen/Qwen3-8B"}`: routes to one model each.',
    ),
    modelFallbacks: variable(
      "MODEL_FALLBACKS",
      jsonMap(fallbackNames, '{"model":["another"]}'),
      'JSON: the `fallbacks` of routes that say nothing else, such as `{"big":["small"]}`. The response names the model that has answered.',
    ),
    /** By vLLM's name of the model. */
    modelEngines: variable(
      "MODEL_ENGINES",
      jsonMap(z.enum(ENGINES), '{"model":"harmony"}'),
      'JSON: `{"my-model":"harmony"}` or `"chat"`, for a model whose name and root do not show whether it is gpt-oss.',
    ),
    /** By vLLM's name of the model. */
    contextWindows: variable(
      "CONTEXT_WINDOWS",
      jsonMap(z.int().positive(), '{"model":131072}'),
      'JSON: context windows in tokens, such as `{"llama3.2":8192}`: for a model whose server does not report its window (Ollama), or to use less of it.',
    ),
    codexModels: variable(
      "CODEX_MODELS",
      jsonMap(z.record(z.string(), z.unknown()), '{"model":{"input_modalities":["text","image"]}}'),
      'JSON: fields of Codex\'s model catalogue, by model; `*` stands for all. Without `{"qwen3":{"input_modalities":["text","image"]}}` Codex sends no images ([clients.md](../clients.md)), and the model is given no pictures of pages ([files.md](../files.md#pages-as-pictures)).',
    ),
    formatWithTools: variable(
      "VLLM_FORMAT_WITH_TOOLS",
      z.enum(["never", "strict", "always"]).default("never"),
      "When vLLM's grammar lets a model choose between a tool call and `text.format`. `strict`: where a tool is `strict` (vLLM 0.32 with a parser that has structural tags). `always`: with `--tool-strict-level function` or higher. See [tools.md](../tools.md).",
    ),
    vllmExtraFields: variable(
      "VLLM_EXTRA_FIELDS",
      extraFields,
      "Fields that this server forwards to vLLM unchecked, such as `documents,media_io_kwargs`: 64 KB in all.",
    ),
    hidesReasoning: variable(
      "REASONING_CONTENT",
      z
        .enum(["shown", "hidden"])
        .default("shown")
        .transform((value) => value === "hidden"),
      "`hidden` hides reasoning from all clients.",
    ),
    /** By vLLM's name of the model, then by the request's `reasoning.effort`. */
    thinkingBudgets: variable(
      "THINKING_BUDGETS",
      jsonMap(z.partialRecord(efforts, z.int().min(0)), '{"model":{"low":1024}}'),
      'JSON: a chat model\'s `thinking_token_budget` for each `reasoning.effort`, such as `{"my-model":{"low":1024,"high":16384}}`. A request\'s own goes before it.',
    ),
    repetitionGuard: variable(
      "REPETITION_GUARD",
      z.enum(REPETITION_GUARDS).default("on"),
      "Where a model that repeats itself is stopped, and goes on without the repetitions: `on` is in reasoning and answers, `thoughts` only in reasoning, `off` nowhere. A key or a tenant may have its own. See [repetition.md](../repetition.md).",
    ),
    /** By vLLM's name of the model; `*` stands for all others. */
    keepThoughts: variable(
      "KEEP_THOUGHTS",
      jsonMap(
        z.union([z.enum(["auto", "current_turn", "all_turns"]), z.record(z.string(), z.unknown())]),
        '{"model":"all_turns"}',
      ),
      'JSON: the turns whose thoughts a model gets back, where the request has no `reasoning.context`: `{"my-model":"all_turns"}`, `"current_turn"`, or the variables of its chat template that say so, such as `{"my-model":{"preserve_thinking":true}}`; `*` stands for all other models. Without it the model\'s card decides ([reasoning.md](../reasoning.md#thoughts-of-earlier-turns)).',
    ),
    /** Between 0 and 1. */
    promptCacheSample: variable(
      "PROMPT_CACHE_SAMPLE",
      ratio(0.01),
      "The share of conversations, from 0 to 1, whose prompts are compared turn by turn: a log line `prompt_drift` names the first part that a model server must compute again ([reasoning.md](../reasoning.md#what-a-prefix-cache-cannot-use-again)).",
    ),
    isMediaListed: variable(
      "MEDIA_URLS",
      urlPrefixes(),
      "URL prefixes from which vLLM may fetch images and videos, besides public https addresses.",
    ),
    vllmExtras: variable(
      "VLLM_EXTRAS",
      someOf(VLLM_EXTRAS).transform(setOf(VLLM_EXTRAS)).optional(),
      `Fields that clients may send although they reach beyond the request's own sampling: \`all\`, \`none\`, or some of \`${VLLM_EXTRAS.join(",")}\`. Without this variable, a deployment with keys opens none and one without keys opens all.`,
    ),
    passthroughEndpoints: variable(
      "PASSTHROUGH_ENDPOINTS",
      someOf(PASSTHROUGH_ENDPOINTS).default(["none"]).transform(setOf(PASSTHROUGH_ENDPOINTS)),
      `vLLM's own endpoints that clients may call: \`all\`, \`none\`, or some of \`${PASSTHROUGH_ENDPOINTS.join(",")}\`. See [model-servers.md](../model-servers.md#vllms-own-endpoints).`,
    ),
    /** vLLM's `priority` by tier; lower runs sooner. If none is set, only a client's own is sent. */
    priorities: variable(
      "VLLM_PRIORITIES",
      jsonMap(priority, '{"default":0,"background":100,"gold":-10}'),
      'JSON: vLLM\'s `priority` of each tier; a lower one comes first. `{"default":0,"background":100,"gold":-10}`: `default` is for callers without a tier, and `background` is added for background runs. Needs `--scheduling-policy priority` ([vllm.md](../vllm.md)). Without this variable no priority is sent.',
    ),
  },
} satisfies Section;

/** Settings of prompts for gpt-oss. */
export const harmony = {
  title: "gpt-oss",
  variables: {
    /** Undefined means the date of the turn. */
    startDate: variable(
      "HARMONY_START_DATE",
      z.iso.date().optional(),
      "`YYYY-MM-DD`: fixes the date in the system message, as vLLM's `VLLM_SYSTEM_START_DATE`. Without it the date is that of the turn.",
    ),
    systemInstructions: variable(
      "HARMONY_SYSTEM_INSTRUCTIONS",
      flag,
      "`true` puts instructions into the system message, behind the model's identity, as vLLM's `VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS`.",
    ),
    toolHeader: variable(
      "HARMONY_TOOL_HEADER",
      z.enum(["channel-first", "recipient-first"]).default("channel-first"),
      "Where the header of a tool's answer names its recipient: behind the channel or before it. openai/harmony wrote `recipient-first` until 0.0.11.",
    ),
  },
} satisfies Section;
