import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterEach, expect, it } from "vitest";
import { parse } from "yaml";
import { readConfigFile } from "../../cli/configuration/config-file.ts";
import { configSchema } from "../../cli/configuration/config-schema.ts";
import { mistakesOf } from "../../cli/configuration/environment.ts";
import { cleanUp, newFolder } from "../e2e/serve-support.ts";
import { root } from "../workerd/tools.ts";

/** The schema of the configuration file agrees with the server's own checks. */

afterEach(cleanUp);

const validate = new Ajv2020({ strict: false, validateFormats: false }).compile(configSchema());

/** The server's errors for a file's text. */
function mistakesIn(text: string): readonly string[] {
  const path = join(newFolder(), "edge.yaml");
  writeFileSync(path, text);
  const { variables, mistakes } = readConfigFile(path, []);
  return [...mistakes, ...mistakesOf(variables)];
}

const LEAST = "vllm_base_url: http://gpu:8000/v1\n";

it("the documentation's file is valid, by the schema and by the server", () => {
  const page = readFileSync(join(root, "docs/self-hosting.md"), "utf8");
  const text = /```yaml\n([\s\S]*?)```/.exec(page)?.[1] ?? "";
  expect(text).toContain("upstreams:");
  expect(validate(parse(text)), JSON.stringify(validate.errors)).toBe(true);
  expect(mistakesIn(text)).toEqual([]);
});

it.each([
  "heartbeat_ms: 100",
  "show_upstream: true",
  "otel_traces_sampler_arg: 0.5",
  "retention_days: 7",
  "vllm_extras: [priority, kv_transfer_params]",
  "vllm_extras: all",
  "mcp_servers: [https://a.example/, https://b.example/]",
  "thinking_budgets: { qwen3: { low: 1024 } }",
  "routes: { a: b, c: { to: d, context_window_fallbacks: [e] } }",
])("%s is accepted by both", (line) => {
  const text = LEAST + line;
  expect(validate(parse(text)), JSON.stringify(validate.errors)).toBe(true);
  expect(mistakesIn(text)).toEqual([]);
});

it.each([
  "heartbeat_ms: 1",
  "heartbeat_ms: soon",
  "show_upstream: 7",
  "retention_day: 7",
  "vllm_extras: [everything]",
  "routes: { a: { to: [] } }",
  "routes: { a: { fallback: [b] } }",
  "model_prices: { a: { input: -1, output: 1 } }",
])("%s is refused by both", (line) => {
  const text = LEAST + line;
  expect(validate(parse(text))).toBe(false);
  expect(mistakesIn(text)).toHaveLength(1);
});
