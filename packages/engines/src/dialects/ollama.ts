import type { Dialect } from "./dialect.ts";
import { OPENAI_FIELDS } from "./openai-fields.ts";

const {
  max_completion_tokens: _,
  tool_choice: __,
  parallel_tool_calls: ___,
  logit_bias: ____,
  ...known
} = OPENAI_FIELDS;

/** Ollama 0.17.4, from its source (`openai/openai.go`) and the answers of a running one. */
export const ollama: Dialect = {
  name: "ollama",
  title: "Ollama",
  owner: "library",
  probe: { path: "//api/version", field: "version" },
  fields: { ...known, max_completion_tokens: "max_tokens" },
  unknownFields: "ignored",
  choice: "none",
  bindsFormat: true,
  joinsFormat: false,
  logprobsWithTools: false,
  continues: "never",
  misreadsLastAnswer: true,
  hasTokenIds: false,
  separatesTenants: false,
  cutsPrompts: true,
  answersAnyModel: false,
};
