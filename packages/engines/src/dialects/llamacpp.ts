import type { Dialect } from "./dialect.ts";
import { OPENAI_FIELDS } from "./openai-fields.ts";

/** llama.cpp's `llama-server`, builds 10434 and 11549. Facts: `test/llamacpp`. */
export const llamacpp: Dialect = {
  name: "llamacpp",
  title: "llama.cpp",
  owner: "llamacpp",
  probe: { path: "//props", field: "default_generation_settings" },
  fields: {
    ...OPENAI_FIELDS,
    top_k: "top_k",
    min_p: "min_p",
    repetition_penalty: "repeat_penalty",
    ignore_eos: "ignore_eos",
    chat_template_kwargs: "chat_template_kwargs",
    thinking_token_budget: "thinking_budget_tokens",
    continue_final_message: "continue_final_message",
    add_generation_prompt: "add_generation_prompt",
  },
  unknownFields: "ignored",
  grammar: "grammar",
  choice: "required",
  bindsFormat: true,
  joinsFormat: false,
  logprobsWithTools: false,
  counting: "input_tokens",
  window: ["meta", "n_ctx"],
  windowWhenLoaded: { path: "//props", query: "model", field: ["default_generation_settings", "n_ctx"] },
  continues: "after_thoughts",
  misreadsLastAnswer: true,
  hasTokenIds: false,
  separatesTenants: false,
  bindsWholePatterns: true,
  isTokenPerDelta: true,
  endsThoughts: true,
  answersAnyModel: true,
  gauges: /^llamacpp:requests_(?:processing|deferred)(?:\{[^}\n]*\})? +([0-9.eE+]+)$/gm,
};
