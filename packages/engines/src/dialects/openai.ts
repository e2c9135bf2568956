import type { Dialect } from "./dialect.ts";
import { OPENAI_FIELDS } from "./openai-fields.ts";

/** Any other server of `/v1/chat/completions`. Nothing beyond OpenAI's API is expected of it, or trusted. */
export const openai: Dialect = {
  name: "openai",
  title: "another server",
  fields: { ...OPENAI_FIELDS, stop: "stop" },
  unknownFields: "refused",
  choice: "named",
  bindsFormat: false,
  joinsFormat: false,
  usageAtStop: "stop",
  logprobsWithTools: true,
  window: ["max_model_len"],
  continues: "never",
  misreadsLastAnswer: false,
  hasTokenIds: false,
  answersAnyModel: false,
};
