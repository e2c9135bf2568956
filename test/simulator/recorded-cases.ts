import type { JsonObject } from "../../dev/simulator/json.ts";

/** A request whose answer by a real vLLM is recorded. */
export type RecordedCase = { name: string; path: string; body: JsonObject };

const CHAT = "/v1/chat/completions";
const COMPLETIONS = "/v1/completions";
const USAGE = { stream: true, stream_options: { include_usage: true } };
const SCHEMA: JsonObject = {
  type: "object",
  properties: { a: { type: "integer" } },
  required: ["a"],
  additionalProperties: false,
};
const TOOL: JsonObject = { type: "function", function: { name: "f", parameters: SCHEMA } };
const CALL = 'hi‹tool_call›\n{"name": "f", "arguments": {"a": 1}}\n‹/tool_call›';

/**
 * The requests for the scripted models: `tiny-qwen3` for chats, `tiny-gpt-oss` for completions. The simulator's
 * README.md describes the scripts.
 */
export const CASES: RecordedCase[] = [
  chat("chat in one piece", "hey there"),
  chat("chat streamed", "hey there", USAGE),
  chat("chat streamed without usage", "hey there", { stream: true }),
  chat("token ids and logprobs", "hey there", { ...USAGE, return_token_ids: true, logprobs: true }),
  chat("token ids and logprobs in one piece", "hey there", { return_token_ids: true, logprobs: true, top_logprobs: 1 }),
  chat("usage in every chunk", "hey", {
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  }),
  chat("thinking off", "hey", { ...USAGE, chat_template_kwargs: { enable_thinking: false } }),
  chat("no end of the thoughts", script("no end"), USAGE),
  chat("thoughts hidden", "hey", { ...USAGE, include_reasoning: false, logprobs: true, return_token_ids: true }),
  chat("characters of several tokens", script("‹think›a‹/think›x 🦄 𓀀"), {
    ...USAGE,
    logprobs: true,
    return_token_ids: true,
  }),
  chat("max_tokens reached", "WORDS=5", { ...USAGE, max_tokens: 12 }),
  chat("a stop string, its text held back", script("one two three four"), {
    ...USAGE,
    stop: ["three"],
    logprobs: true,
    chat_template_kwargs: { enable_thinking: false },
  }),
  chat("a stop string that never comes", script("one two three four"), {
    ...USAGE,
    stop: ["seventeen"],
    chat_template_kwargs: { enable_thinking: false },
  }),
  chat("a stop token", script("‹think›a b‹/think›one two three"), {
    ...USAGE,
    stop_token_ids: [1920],
    return_token_ids: true,
  }),
  chat("a call", script(`‹think›x‹/think›${CALL}`), { tools: [TOOL] }),
  chat("a call streamed", script(`‹think›x‹/think›${CALL}`), { ...USAGE, tools: [TOOL], return_token_ids: true }),
  chat(
    "two calls",
    script(
      '‹think›x‹/think›‹tool_call›{"name": "f", "arguments": {"a": 1}}‹/tool_call›\n‹tool_call›{"name": "f", "arguments": {}}‹/tool_call›',
    ),
    { ...USAGE, tools: [TOOL] },
  ),
  chat("a call of an unknown tool", script('‹tool_call›{"name": "nope", "arguments": {"a": 1}}‹/tool_call›'), {
    ...USAGE,
    tools: [TOOL],
  }),
  chat("a call with arguments that are cut", script('‹tool_call›{"name": "f", "arguments": {"a": ‹/tool_call›'), {
    ...USAGE,
    tools: [TOOL],
  }),
  chat("the same in one piece", script('‹tool_call›{"name": "f", "arguments": {"a": ‹/tool_call›'), { tools: [TOOL] }),
  chat("a required call", script(`‹think›x‹/think›${CALL.slice(2)}`), {
    ...USAGE,
    tools: [TOOL],
    tool_choice: "required",
  }),
  chat("a named call", script(`‹think›x‹/think›${CALL.slice(2)}`), {
    tools: [TOOL],
    tool_choice: { type: "function", function: { name: "f" } },
  }),
  chat("call syntax where no tool may be called", script(`‹think›x‹/think›${CALL}`), {
    ...USAGE,
    tools: [TOOL],
    tool_choice: "none",
  }),
  chat(
    "after a tool's result",
    [
      ...user("x"),
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: '{"a":1}' } }],
      },
      { role: "tool", tool_call_id: "1", content: "42" },
    ],
    { tools: [TOOL], return_token_ids: true },
  ),
  chat("a schema", script('‹think›x‹/think›{"a":1}'), { ...USAGE, ...format(SCHEMA) }),
  chat("a continued message", continued(), {
    ...USAGE,
    continue_final_message: true,
    add_generation_prompt: false,
    return_token_ids: true,
  }),
  chat("a continued message in one piece", continued(), { continue_final_message: true, add_generation_prompt: false }),
  chat(
    "parts",
    [
      {
        role: "user",
        content: [
          { type: "text", text: "one" },
          { type: "text", text: "two" },
        ],
      },
    ],
    { return_token_ids: true },
  ),

  chat("error: tools []", "hi", { tools: [] }),
  chat("error: max_tokens 0", "hi", { max_tokens: 0 }),
  chat("error: max_completion_tokens 0", "hi", { max_completion_tokens: 0 }),
  chat("error: max_tokens beyond the window", "hi", { max_tokens: 5000 }),
  chat("error: max_completion_tokens beyond the window", "hi", { max_completion_tokens: 5000 }),
  chat("max_tokens of the whole window", "hi", { max_tokens: 4096 }),
  chat("error: a prompt beyond the window", "a ".repeat(5000)),
  chat("error: the same streamed", "a ".repeat(5000), USAGE),
  chat("error: temperature -1", "hi", { temperature: -1 }),
  chat("error: temperature 3", "hi", { temperature: 3 }),
  chat("error: top_p 2", "hi", { top_p: 2 }),
  chat("error: top_k -5", "hi", { top_k: -5 }),
  chat("error: presence_penalty 3", "hi", { presence_penalty: 3 }),
  chat("error: an empty stop", "hi", { stop: "" }),
  chat("error: five stops", "hi", { stop: ["a", "b", "c", "d", "e"] }),
  chat("error: top_logprobs alone", "hi", { top_logprobs: 2 }),
  chat("error: top_logprobs 21", "hi", { logprobs: true, top_logprobs: 21 }),
  chat("error: stream_options without stream", "hi", { stream_options: { include_usage: true } }),
  { name: "error: no messages", path: CHAT, body: { model: "tiny-qwen3" } },
  chat("error: messages []", []),
  chat("error: tool_choice without tools", "hi", { tool_choice: "auto" }),
  chat("error: an unknown named tool", "hi", {
    tools: [TOOL],
    tool_choice: { type: "function", function: { name: "g" } },
  }),
  chat("error: a custom tool", "hi", { tools: [{ type: "custom" }] }),
  chat("error: a schema of a wrong type", "hi", format({ type: "objekt" })),
  chat("error: the same streamed", "hi", { ...USAGE, ...format({ type: "objekt" }) }),
  chat("error: a schema with a broken reference", "hi", format({ $ref: "#/nope" })),
  chat("error: a schema with uniqueItems", "hi", format({ type: "array", items: {}, uniqueItems: true })),
  chat("error: a strict tool of a wrong type", "hi", { tools: [strict({ type: "objekt" })] }),
  chat("error: a strict tool of a wrong type, streamed", "hi", { ...USAGE, tools: [strict({ type: "objekt" })] }),
  chat("error: two structures", "hi", { structured_outputs: { regex: "a", choice: ["b"] } }),
  chat("error: response_format without a schema", "hi", { response_format: { type: "json_schema" } }),
  chat("error: an unknown part", [{ role: "user", content: [{ type: "banana" }] }]),
  chat("error: a file", [{ role: "user", content: [{ type: "file", file: { file_id: "x" } }] }]),
  chat("error: an image", [
    { role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }] },
  ]),
  chat("error: both ways to begin", "hi", { continue_final_message: true, add_generation_prompt: true }),
  chat("error: continued without add_generation_prompt: false", continued(), { continue_final_message: true }),
  chat("error: cache_salt empty", "hi", { cache_salt: "" }),
  chat("error: an unknown effort", "hi", { reasoning_effort: "bogus" }),
  chat("error: stream is no boolean", "hi", { stream: "bogus" }),
  chat("error: max_tokens is no number", "hi", { max_tokens: "x" }),
  chat("error: max_tokens is no integer", "hi", { max_tokens: 1.5 }),
  chat("arguments in the history that are no JSON", [
    ...user("NOTHINK x"),
    {
      role: "assistant",
      content: null,
      tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{bad" } }],
    },
    { role: "tool", tool_call_id: "1", content: "42" },
  ]),

  gptOss("gpt-oss in one piece", "hey", { return_token_ids: true }),
  gptOss("gpt-oss streamed", "hey", { ...USAGE, return_token_ids: true }),
  gptOss("gpt-oss streamed without usage", "hey", { stream: true }),
  gptOss("gpt-oss usage in every chunk", script("‹|channel|›final‹|message|›a‹|return|›"), {
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  }),
  gptOss("gpt-oss logprobs", script("‹|channel|›final‹|message|›a 🦄‹|return|›"), {
    stream: true,
    return_token_ids: true,
    logprobs: 0,
  }),
  gptOss("gpt-oss with a stop string", script("‹|channel|›final‹|message|›a bb ccc dddd‹|return|›"), {
    stream: true,
    return_token_ids: true,
    stop: ["ccc"],
  }),
  gptOss("gpt-oss calls", script("‹|channel|›commentary to=functions.f ‹|constrain|›json‹|message|›{}‹|call|›"), {
    ...USAGE,
    stop_token_ids: [200_002, 200_012],
  }),
  gptOss("gpt-oss max_tokens reached", "WORDS=5", { ...USAGE, max_tokens: 12 }),
  gptOss("gpt-oss max_tokens: null", "WORDS=20", { max_tokens: null }),
  gptOss("gpt-oss max_tokens of the whole window", "hi", { max_tokens: 8192 }),
  gptOss("error: gpt-oss max_tokens beyond the window", "hi", { max_tokens: 9000 }),
  gptOss("error: gpt-oss max_tokens 0", "hi", { max_tokens: 0 }),
  gptOss("error: gpt-oss prompt beyond the window", "a ".repeat(9000)),
  ids(
    "error: gpt-oss prompt of exactly the window",
    Array.from({ length: 8192 }, () => 64),
  ),
  ids("error: gpt-oss token id out of vocabulary", [99_999_999]),
  ids("error: gpt-oss negative token id", [-1]),
  ids("error: gpt-oss prompt []", []),
  { name: "error: gpt-oss no prompt", path: COMPLETIONS, body: { model: "tiny-gpt-oss" } },
  gptOss("error: gpt-oss suffix", "hi", { suffix: "b" }),
  gptOss("error: gpt-oss logprobs 21", "hi", { logprobs: 21 }),
  gptOss("error: gpt-oss structural tag that is none", "hi", { structured_outputs: { structural_tag: "{" } }),
  gptOss("error: gpt-oss schema of a wrong type", "hi", format({ type: "objekt" })),
  gptOss("error: gpt-oss schema of a wrong type, streamed", "hi", { ...USAGE, ...format({ type: "objekt" }) }),

  { name: "tokenize", path: "/tokenize", body: { model: "tiny-qwen3", prompt: "hi there" } },
  { name: "tokenize messages", path: "/tokenize", body: { model: "tiny-qwen3", messages: user("hi") } },
  { name: "detokenize", path: "/detokenize", body: { model: "tiny-qwen3", tokens: [198, 3575] } },
  { name: "error: tokenize nothing", path: "/tokenize", body: { model: "tiny-qwen3" } },
];

function chat(name: string, content: string | JsonObject[], more: JsonObject = {}): RecordedCase {
  const messages = typeof content === "string" ? user(content) : content;
  return { name, path: CHAT, body: { model: "tiny-qwen3", messages, ...more } };
}

function user(content: string): JsonObject[] {
  return [{ role: "user", content }];
}

function script(text: string): string {
  return `SCRIPT[[${text}${text.includes("‹|") ? "" : "‹|im_end|›"}]]`;
}

function format(schema: JsonObject): JsonObject {
  return { response_format: { type: "json_schema", json_schema: { name: "n", schema } } };
}

function strict(parameters: JsonObject): JsonObject {
  return { type: "function", function: { name: "f", strict: true, parameters } };
}

function continued(): JsonObject[] {
  return [
    ...user(script("‹think›\na b\n‹/think›\n\nc d e f")),
    { role: "assistant", content: "c d", reasoning: "a b" },
  ];
}

function gptOss(name: string, text: string, more: JsonObject = {}): RecordedCase {
  const prompt = `<|start|>user<|message|>${text}<|end|><|start|>assistant`;
  const body = { model: "tiny-gpt-oss", prompt, skip_special_tokens: false, max_tokens: 100, ...more };
  return { name, path: COMPLETIONS, body };
}

function ids(name: string, prompt: number[]): RecordedCase {
  return { name, path: COMPLETIONS, body: { model: "tiny-gpt-oss", prompt } };
}
