import { missingParsersOf, noteMissingParser } from "@responses-edge/engines/missing-parsers";
import { afterEach, expect, it, vi } from "vitest";

/** Model servers without parsers are logged once for each model, with the flags that they lack. */

afterEach(() => vi.restoreAllMocks());

it("a missing parser is logged once, and remembered with its flags", () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
  const server = { baseUrl: "http://bare.invalid/v1", name: "gpu-1", dialect: "vllm" as const };
  for (let times = 0; times < 2; times += 1) noteMissingParser(server, "qwen", "tool_calls");
  noteMissingParser({ ...server, dialect: undefined }, "qwen", "reasoning");
  expect(warn.mock.calls.map(([line]) => JSON.parse(line as string) as unknown)).toEqual([
    {
      level: "warn",
      missing_parser: "tool_calls",
      server: "gpu-1",
      model: "qwen",
      flags: "--enable-auto-tool-choice --tool-call-parser NAME",
    },
    { level: "warn", missing_parser: "reasoning", server: "gpu-1", model: "qwen" },
  ]);
  expect(missingParsersOf(server.baseUrl, "llamacpp")).toEqual([
    { model: "qwen", parsers: ["reasoning", "tool_calls"], flags: ["--jinja --reasoning-format auto", "--jinja"] },
  ]);
  expect(missingParsersOf("http://other.invalid/v1", "vllm")).toEqual([]);
});
