import {
  Agent,
  type AgentOutputType,
  hostedMcpTool,
  OpenAIResponsesModel,
  OpenAIResponsesWSModel,
  Runner,
  type RunResult,
  RunState,
  type StreamedRunResult,
  tool,
} from "@openai/agents";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { GPT_OSS } from "./harmony-support.ts";
import { type Gateway, startGateway } from "./support.ts";
import { MODELS, startTools, type ToolServer } from "./tool-support.ts";

/** `@openai/agents` in its usual form: an agent with functions of its own and an MCP server that this server calls. */

let gateway: Gateway;
let server: ToolServer;
const weather = { calls: [] as string[] };

beforeAll(async () => {
  server = await startTools({
    add: {
      properties: { a: { const: 1 }, b: { const: 2 } },
      readOnly: true,
      run: ({ a, b }) => String(Number(a) + Number(b)),
    },
    write: { properties: { text: { type: "string" } }, readOnly: false, run: () => "written" },
  });
  gateway = await startGateway({ MCP_SERVERS: server.url });
});
afterAll(async () => {
  await gateway?.close();
  await server?.close();
});
beforeEach(() => {
  server.calls.length = 0;
  weather.calls.length = 0;
});

const getWeather = tool({
  name: "get_weather",
  description: "The weather in a city.",
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => {
    weather.calls.push(city);
    return "sunny";
  },
});

type Approval = Extract<Parameters<typeof hostedMcpTool>[0], { requireApproval?: unknown }>["requireApproval"];

/** The SDK's own client, whose answers are checked. */
const newClient = () =>
  new OpenAI({ apiKey: "any", baseURL: `${gateway.url}/v1`, maxRetries: 0, fetch: gateway.fetch });

function agent(model: string, requireApproval: Approval = "never"): Assistant {
  const options = { serverLabel: "docs", serverUrl: server.url, headers: { "X-Own": "mine" } };
  return new Agent({
    name: "Assistant",
    instructions: "Help.",
    model: new OpenAIResponsesModel(newClient(), model),
    tools: [getWeather, hostedMcpTool({ ...options, requireApproval } as Parameters<typeof hostedMcpTool>[0])],
  });
}

const runner = new Runner({ tracingDisabled: true });

type Assistant = Agent<unknown, AgentOutputType>;
type Result = RunResult<unknown, Assistant> | StreamedRunResult<unknown, Assistant>;
type Input = string | RunState<unknown, Assistant> | Result["history"];

/** Runs an agent to its end, or to its next interruption. */
async function run(
  by: Assistant,
  input: Input,
  stream: boolean,
  fields: Record<string, unknown> = {},
): Promise<Result> {
  if (!stream) return runner.run<Assistant, unknown>(by, input, { maxTurns: 10, ...fields });
  const result = await runner.run<Assistant, unknown>(by, input, { stream: true, maxTurns: 10, ...fields });
  let events = 0;
  for await (const event of result) if (event.type) events += 1;
  await result.completed;
  expect(result.error).toBeNull();
  expect(events).toBeGreaterThan(0);
  return result;
}

const lines = (result: Result) => String(result.finalOutput).split("\n").toSorted();

describe.each(MODELS.flatMap((model) => [false, true].map((stream) => [model, stream] as const)))(
  "%s, stream: %s",
  (model, stream) => {
    it("uses its own functions and the MCP server's in one run", async () => {
      const result = await run(agent(model), "Call get_weather, docs__add and docs__write.", stream);
      expect(lines(result)).toEqual([
        "The tool docs__add returned: 3",
        "The tool docs__write returned: written",
        "The tool get_weather returned: sunny",
      ]);
      expect(weather.calls).toEqual(["city"]);
      expect(server.calls.map(({ name }) => name)).toEqual(["add", "write"]);
      expect(server.calls.every(({ headers }) => headers["x-own"] === "mine")).toBe(true);
      const types = result.newItems.map(({ type }) => type);
      expect(types.filter((type) => type === "tool_call_item").length).toBeGreaterThanOrEqual(3);
      expect(types.at(-1)).toBe("message_output_item");
    });

    it("continues with its whole history, which it keeps itself", async () => {
      const by = agent(model);
      const first = await run(by, "Call docs__add.", stream);
      const lists = server.lists;
      const second = await run(by, [...first.history, { role: "user", content: "Call docs__write." }], stream);
      expect(second.finalOutput).toBe("The tool docs__write returned: written");
      const third = await run(by, [...second.history, { role: "user", content: "Thanks." }], stream);
      expect(third.finalOutput).toBe("You said: Thanks.");
      expect(server.calls.map(({ name }) => name)).toEqual(["add", "write"]);
      expect(server.lists).toBe(lists);
    });

    it("continues by previousResponseId", async () => {
      const by = agent(model);
      const first = await run(by, "Call docs__add.", stream);
      const second = await run(by, "Call get_weather and docs__write.", stream, {
        previousResponseId: first.lastResponseId,
      });
      expect(lines(second)).toEqual(["The tool docs__write returned: written", "The tool get_weather returned: sunny"]);
    });

    it("does the same over a WebSocket, also without storage", async () => {
      const overSocket = new OpenAIResponsesWSModel(newClient(), model);
      const by: Assistant = new Agent({ name: "Assistant", model: overSocket, tools: [getWeather] });
      const unstored = by.clone({ modelSettings: { store: false } });
      const first = await run(unstored, "Call get_weather.", stream);
      expect(first.finalOutput).toBe("The tool get_weather returned: sunny");
      const second = await run(unstored, "Thanks.", stream, { previousResponseId: first.lastResponseId });
      expect(second.finalOutput).toBe("You said: Thanks.");
      const stored = await run(by, "Call get_weather.", stream);
      expect((await gateway.openai.responses.retrieve(stored.lastResponseId ?? "")).output_text).toBe(
        "The tool get_weather returned: sunny",
      );
      await overSocket.close();
    });

    it("continues in a conversation", async () => {
      const by = agent(model);
      const conversationId = (await gateway.openai.conversations.create({})).id;
      await run(by, "Call get_weather and docs__add.", stream, { conversationId });
      const second = await run(by, "Call docs__write.", stream, { conversationId });
      expect(second.finalOutput).toBe("The tool docs__write returned: written");
    });

    it.each([true, false])("stops for an approval, and continues with the answer (approved: %s)", async (approved) => {
      const by = agent(model, "always");
      const first = await run(by, "Call docs__write.", stream);
      expect(first.interruptions).toHaveLength(1);
      const [interruption] = first.interruptions ?? [];
      if (!interruption) throw new Error("There is no interruption.");
      expect(interruption.rawItem).toMatchObject({ name: "write" });
      expect(server.calls).toEqual([]);
      // As in an application that waits for a human, the state is serialised and restored.
      const state = await RunState.fromString<unknown, Assistant>(by, first.state.toString());
      const [found] = state.getInterruptions();
      if (!found) throw new Error("The interruption was lost.");
      if (approved) state.approve(found);
      else state.reject(found);
      const second = await run(by, state, stream);
      expect(second.interruptions ?? []).toEqual([]);
      expect(second.finalOutput).toBe(
        approved
          ? "The tool docs__write returned: written"
          : "The tool docs__write returned: The user did not approve this call.",
      );
      expect(server.calls.map(({ name }) => name)).toEqual(approved ? ["write"] : []);
    });

    it("does not stop if a function of its own approves", async () => {
      const asked: string[] = [];
      const by: Assistant = new Agent<unknown, AgentOutputType>({
        name: "Assistant",
        model: new OpenAIResponsesModel(newClient(), model),
        tools: [
          hostedMcpTool({
            serverLabel: "docs",
            serverUrl: server.url,
            allowedTools: { toolNames: ["add", "write"] },
            requireApproval: { never: { toolNames: ["add"] }, always: { toolNames: ["write"] } },
            onApproval: async (_, item) => {
              asked.push(String((item.rawItem as { name: string }).name));
              return { approve: true };
            },
          }),
        ],
      });
      const result = await run(by, "Call docs__add and docs__write.", stream);
      expect(lines(result)).toEqual(["The tool docs__add returned: 3", "The tool docs__write returned: written"]);
      expect(asked).toEqual(["write"]);
    });
  },
);

describe.each([false, true])("an agent with an output type, stream: %s", (stream) => {
  const report = z.object({ city: z.string(), sunny: z.boolean() });

  it.each(MODELS)(
    "calls its functions and the server's tools, and ends with an output of the type: %s",
    async (model) => {
      const by = agent(model);
      const typed: Assistant = by.clone({ outputType: report }) as unknown as Assistant;
      const result = await run(typed, "Call get_weather and docs__add.", stream);
      expect(weather.calls).toEqual(["city"]);
      expect(server.calls.map(({ name }) => name)).toEqual(["add"]);
      expect(report.parse(result.finalOutput)).toEqual({ city: "city", sunny: expect.any(Boolean) });
      // No text before a call is taken for the answer.
      const messages = result.newItems.filter(({ type }) => type === "message_output_item");
      expect(messages).toHaveLength(1);
    },
  );
});

it("hands over from one model to another", async () => {
  const writer = agent(GPT_OSS);
  const first = await run(agent("simulator"), "Call docs__add.", false);
  const second = await run(writer, [...first.history, { role: "user", content: "Call docs__write." }], false);
  expect(second.finalOutput).toBe("The tool docs__write returned: written");
});
