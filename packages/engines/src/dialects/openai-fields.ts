/** The fields of OpenAI's chat completions that this server sends, unchanged: any kind of server takes them. */
export const OPENAI_FIELDS = Object.fromEntries(
  [
    ...["model", "messages", "stream", "stream_options", "temperature", "top_p", "seed", "logit_bias"],
    ...["presence_penalty", "frequency_penalty", "tools", "tool_choice", "parallel_tool_calls"],
    ...["response_format", "max_completion_tokens", "logprobs", "top_logprobs", "reasoning_effort"],
  ].map((field) => [field, field]),
);
