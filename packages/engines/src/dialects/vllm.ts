import type { Dialect } from "./dialect.ts";

/** vLLM 0.10 to 0.32. All requests are made in its form. Facts: `test/vllm`. */
export const vllm: Dialect = {
  name: "vllm",
  title: "vLLM",
  owner: "vllm",
  probe: { path: "//version", field: "version" },
  unknownFields: "ignored",
  grammar: "structured_outputs",
  choice: "named",
  bindsFormat: true,
  joinsFormat: true,
  usageAtStop: "continuous_usage_stats",
  logprobsWithTools: true,
  counting: "tokenize",
  renders: "//tokenize",
  continues: "after_thoughts",
  misreadsLastAnswer: false,
  hasTokenIds: true,
  separatesTenants: true,
  answersAnyModel: false,
  gauges: /^vllm:num_requests_(?:running|(waiting))(?:\{[^}\n]*\})? +([0-9.eE+]+)$/gm,
};
