import type { ResponseCreateParamsNonStreaming, Tool } from "openai/resources/responses/responses";
import { beforeEach, describe, expect, it } from "vitest";
import { getWeather, onlyCall } from "./harmony-support.ts";
import { type Gateway, joinGateway } from "./support.ts";
import { ask, EVERY_WAY, MODELS } from "./tool-support.ts";

/** A `tool_choice` that forces a call where the model has none to make is refused, and never answered with text alone. */

/** Web search that may open no page, on a server without a search engine. */
const search: Tool = { type: "web_search", external_web_access: false } as Tool;
const empty: Tool = { type: "namespace", name: "empty", description: "Nothing.", tools: [] };

type Asked = Pick<ResponseCreateParamsNonStreaming, "tools" | "tool_choice">;

const allowed = (...tools: { type: string; name?: string }[]) =>
  ({ type: "allowed_tools", mode: "required", tools }) as Asked["tool_choice"];

const CASES: [string, Asked, RegExp][] = [
  ["a search without an engine", { tools: [search], tool_choice: { type: "web_search_preview" } }, /search engine/],
  ["any tool, of a search alone", { tools: [search], tool_choice: "required" }, /search engine/],
  [
    "the search, beside a function",
    { tools: [search, getWeather], tool_choice: { type: "web_search" } as unknown as Asked["tool_choice"] },
    /search engine/,
  ],
  ["the search alone", { tools: [search, getWeather], tool_choice: allowed({ type: "web_search" }) }, /search engine/],
  ["any tool, of an empty namespace", { tools: [empty], tool_choice: "required" }, /namespace 'empty' has no tools/],
  ["any tool, of two that offer nothing", { tools: [empty, search], tool_choice: "required" }, /empty.*search engine/],
];

let gateway: Gateway;
beforeEach(async () => {
  gateway = await joinGateway();
});

describe.each(EVERY_WAY)("a choice that forces, %s, %s:", (model, way) => {
  it.each(CASES)("%s", async (_, asked, why) => {
    const refused = ask(gateway, way, { model, input: "Hello!", ...asked });
    await expect(refused).rejects.toMatchObject({
      status: 400,
      param: "tool_choice",
      message: expect.stringMatching(why),
    });
    expect(gateway.vllm.simulator.requests.filter(({ path }) => path.endsWith("completions"))).toEqual([]);
  });
});

it.each(MODELS)("a choice that leaves a tool that can be called is as before (%s)", async (model) => {
  const body = { model, input: "Hello!", tools: [search, empty, getWeather] };
  const { response } = await ask(gateway, "json", { ...body, tool_choice: "required" });
  expect(onlyCall(response).name).toBe("get_weather");
  const chosen = allowed({ type: "web_search" }, { type: "function", name: "get_weather" });
  const { response: other } = await ask(gateway, "json", { ...body, tool_choice: chosen });
  expect(onlyCall(other).name).toBe("get_weather");
});

it.each(MODELS)("a choice that forces nothing is as before (%s)", async (model) => {
  for (const tool_choice of ["auto", "none"] as const) {
    const { response } = await ask(gateway, "json", { model, input: "Hello!", tools: [search, empty], tool_choice });
    expect(response).toMatchObject({ status: "completed", tool_choice });
  }
});

it("an unfulfillable choice does not prevent a response that is only prepared, or compacted", async () => {
  const body = { model: "simulator", input: "Hello!", tools: [empty], tool_choice: "required" as const };
  expect((await gateway.post({ ...body, generate: false })).status).toBe(200);
  expect(await gateway.openai.responses.compact(body)).toMatchObject({ object: "response.compaction" });
});
