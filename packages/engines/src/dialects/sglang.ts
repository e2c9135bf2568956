import type { Dialect } from "./dialect.ts";
import { OPENAI_FIELDS } from "./openai-fields.ts";

/** SGLang 0.5, from its source (`srt/entrypoints/openai/protocol.py`); not tried with a running one. */
export const sglang: Dialect = {
  name: "sglang",
  title: "SGLang",
  owner: "sglang",
  probe: { path: "//server_info", field: "internal_states" },
  fields: {
    ...OPENAI_FIELDS,
    ...Object.fromEntries(
      [
        ...["top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids"],
        ...["skip_special_tokens", "chat_template_kwargs", "cache_salt", "priority", "continue_final_message"],
      ].map((field) => [field, field]),
    ),
  },
  unknownFields: "ignored",
  grammar: "ebnf",
  choice: "named",
  bindsFormat: true,
  joinsFormat: false,
  usageAtStop: "continuous_usage_stats",
  logprobsWithTools: true,
  counting: "tokenize",
  renders: "//tokenize",
  window: ["max_model_len"],
  continues: "without_thoughts",
  misreadsLastAnswer: true,
  hasTokenIds: false,
  separatesTenants: true,
  answersAnyModel: true,
  prefixesAdapters: true,
  gauges: /^sglang:num_(?:running|(queue))_reqs(?:\{[^}\n]*\})? +([0-9.eE+]+)$/gm,
};
