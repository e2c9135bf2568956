import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import { type Item, inputItem, type OutputItem } from "@responses-edge/responses-api/items/registry";
import { initialResponse } from "@responses-edge/responses-api/response";
import type { ToolExchange } from "@responses-edge/turn/contract/engine";
import { fullNames } from "@responses-edge/turn/contract/plugin";
import type { CalledTool, PendingCall, ToolOutcome, ToolSession } from "@responses-edge/turn/contract/tool-session";
import { EventWriter, OutputSize } from "@responses-edge/turn/output-events";
import { PluginCallItems } from "@responses-edge/turn/plugin-call-items";
import { RawMessages } from "@responses-edge/turn/raw-messages";
import { newTurnState } from "@responses-edge/turn/state";
import { describe, expect, it } from "vitest";
import { PLUGIN_LIST, PLUGINS } from "../../src/tools/plugins.ts";
import { eventViolations, memberViolations } from "../conformance/schemas.ts";

/** Facts about every hosted tool. A new tool needs a sample here. */

interface Sample {
  /** The log's record of its call. */
  tool: CalledTool & Record<string, unknown>;
  /** The name that a chat model writes, and the recorded one. */
  written: string;
  name: string;
  /** The model's text, in pieces. */
  pieces: string[];
  outcome: ToolOutcome & Record<string, unknown>;
  /** The events of its item, without those that begin and end every item. */
  events: string[];
  item: Record<string, unknown>;
  /** The item of its result, if the result has one of its own. */
  result?: Record<string, unknown>;
  /** The status of a failed call, if the item cannot express a failure. */
  failed?: string;
  /** The status of a call that was cut off, if the item cannot express that. */
  cutOff?: string;
  /** The text for a model from an item that a client returns. */
  exchange: Omit<ToolExchange, "step"> | undefined;
}

const MCP_EVENTS = [
  "response.mcp_call.in_progress",
  "response.mcp_call_arguments.delta",
  "response.mcp_call_arguments.delta",
  "response.mcp_call_arguments.done",
  "response.mcp_call.completed",
];

const CODE_EVENTS = [
  "response.code_interpreter_call.in_progress",
  "response.code_interpreter_call_code.delta",
  "response.code_interpreter_call_code.delta",
  "response.code_interpreter_call_code.done",
  "response.code_interpreter_call.interpreting",
  "response.code_interpreter_call.completed",
];

const SEARCH_EVENTS = [
  "response.web_search_call.in_progress",
  "response.web_search_call.searching",
  "response.web_search_call.completed",
];

const SEARCH = { type: "search", query: "owls", queries: ["owls"] };

const SAMPLES: Record<string, Sample> = {
  mcp: {
    tool: { kind: "mcp", label: "docs", name: "look.up", approval: false },
    written: "docs__look_up",
    name: "docs__look_up",
    pieces: ['{"word":', '"owl"}'],
    outcome: { output: "a bird", failed: false },
    events: MCP_EVENTS,
    item: { type: "mcp_call", server_label: "docs", name: "look.up", arguments: '{"word":"owl"}', output: "a bird" },
    exchange: { name: "docs__look_up", arguments: '{"word":"owl"}', output: "a bird" },
  },
  browser: {
    tool: { kind: "browser", action: "search" },
    written: "browser_search",
    name: "browser.search",
    pieces: ['{"query":', '"owls"}'],
    outcome: {
      output: "【0†Owls】",
      failed: false,
      action: SEARCH,
      sources: [{ url: "https://owls.dev/", title: "Owls" }],
    },
    events: SEARCH_EVENTS,
    item: { type: "web_search_call", action: { ...SEARCH, sources: [{ type: "url", url: "https://owls.dev/" }] } },
    // The results of a search are in no item.
    exchange: undefined,
  },
  python: {
    tool: { kind: "python" },
    written: "python",
    name: "python",
    pieces: ["print(", "6 * 7)"],
    outcome: { output: "42", failed: false },
    events: CODE_EVENTS,
    item: {
      type: "code_interpreter_call",
      code: "print(6 * 7)",
      container_id: "cntr_a",
      outputs: [{ type: "logs", logs: "42" }],
    },
    exchange: { name: "python", arguments: "print(6 * 7)", output: "42" },
  },
  container: {
    tool: { kind: "container" },
    written: "container_exec",
    name: "container.exec",
    pieces: ['{"cmd":', '["ls"]}'],
    outcome: { output: "owls.txt", failed: false },
    events: MCP_EVENTS,
    item: {
      type: "mcp_call",
      server_label: "container",
      name: "exec",
      arguments: '{"cmd":["ls"]}',
      output: "owls.txt",
    },
    exchange: { name: "container__exec", arguments: '{"cmd":["ls"]}', output: "owls.txt" },
  },
};

const RESULT = { file_id: "file-1", filename: "owls.md", score: 0.5, text: "Owls hoot.", attributes: {} };
SAMPLES.file_search = {
  tool: { kind: "file_search" },
  written: "file_search",
  name: "file_search",
  pieces: ['{"queries":', '["owls"]}'],
  outcome: { output: "【0:0†source】 file-1 owls.md\nOwls hoot.", failed: false, results: [RESULT] },
  events: [
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
  ],
  item: { type: "file_search_call", queries: ["owls"], results: [RESULT] },
  exchange: {
    name: "file_search",
    arguments: '{"queries":["owls"]}',
    output: "【0:0†source】 file-1 owls.md\nOwls hoot.",
  },
};

const DRAWN = {
  result: "iVBORw0KGgo=",
  action: "generate",
  background: "auto",
  output_format: "png",
  quality: "auto",
  revised_prompt: "an owl",
  size: "256x256",
};
SAMPLES.image_generation = {
  tool: { kind: "image_generation" },
  written: "image_generation",
  name: "image_generation",
  pieces: ['{"prompt":', '"an owl"}'],
  outcome: { output: "The image was made.", failed: false, shown: DRAWN },
  events: ["in_progress", "generating", "completed"].map((each) => `response.image_generation_call.${each}`),
  item: { type: "image_generation_call", ...DRAWN },
  cutOff: "failed",
  exchange: {
    name: "image_generation",
    arguments: '{"prompt":"an owl"}',
    output: expect.stringMatching(/^The image ig_\w+ was made \(256x256 png\)\./) as string,
  },
};

const FOUND = [{ type: "function", name: "hoot", description: "Hoots.", parameters: null, strict: null }];
SAMPLES.tool_search = {
  tool: { kind: "tool_search" },
  written: "tool_search",
  name: "tool_search",
  pieces: ['{"query":', '"owls"}'],
  outcome: { output: "- hoot", failed: false, tools: FOUND },
  events: [],
  item: { type: "tool_search_call", call_id: null, execution: "server", arguments: { query: "owls" } },
  result: { type: "tool_search_output", call_id: null, execution: "server", status: "completed", tools: FOUND },
  failed: "completed",
  // The results are in the next item.
  exchange: undefined,
};

SAMPLES.multi_agent = {
  tool: { kind: "multi_agent", action: "list_agents" },
  written: "list_agents",
  name: "list_agents",
  pieces: ["{", "}"],
  outcome: { output: "[]", failed: false },
  events: [],
  item: { type: "multi_agent_call", action: "list_agents", arguments: "{}" },
  result: { type: "multi_agent_call_output", action: "list_agents", output: [{ type: "output_text", text: "[]" }] },
  // The result is in the next item.
  exchange: { name: "list_agents", arguments: "{}", output: "The result of this call is not known." },
};

const INCLUDE = [
  "file_search_call.results",
  "web_search_call.action.sources",
  "code_interpreter_call.outputs",
] as CreateRequest["include"];
const ADDRESS = newTurnAddress();

/** The calls of a turn, with its events. `items` and `called` are those from before a crash. */
function callsOf(items: OutputItem[] = [], called: PendingCall[] = []) {
  const events: Record<string, unknown>[] = [];
  const fresh = newTurnState();
  const state = { ...fresh, output: items, round: { ...fresh.round, called } };
  const sink = { event: (_type: string, json: string) => void events.push(JSON.parse(json)) };
  const writer = new EventWriter(state, { address: ADDRESS, sink, clock: () => 0, obfuscation: false });
  const size = new OutputSize(state, { limit: 1_000_000, withMessages: false });
  const none = { previous: undefined, firstInput: undefined };
  const response = initialResponse({ model: "m" }, { id: "resp_a", model: "m", createdAt: 0 });
  const messages = new RawMessages(state, response, size, none);
  const session = { container: () => "cntr_a" } as ToolSession;
  const past = { history: [], replays: [], input: [], removed: [] };
  const calls = new PluginCallItems(
    { state, writer, size, messages, fingerprint: () => "" },
    { asked: { request: { include: INCLUDE } }, past, tools: { plugins: PLUGINS, session } },
  );
  return { calls, state, events };
}

/** Lets all pending calls be answered. */
function answer(calls: PluginCallItems, outcome: ToolOutcome): readonly PendingCall[] {
  const pending = [...calls.pending.values()];
  for (const call of pending) {
    calls.start(call);
    const exchange = { name: call.name, arguments: call.arguments, output: outcome.output, step: "1.0" };
    calls.finish(call, outcome, { item: call.item, exchange, messages: [] });
  }
  return pending;
}

function play({ written, tool, pieces, outcome }: Sample) {
  const turn = callsOf();
  turn.calls.begin(0, written, tool);
  for (const piece of pieces) turn.calls.append(0, piece);
  turn.calls.complete(true);
  return { ...turn, pending: answer(turn.calls, outcome) };
}

const copy = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

it("every hosted tool has its sample", () => {
  expect(PLUGIN_LIST.map(({ kind }) => kind).sort()).toEqual(Object.keys(SAMPLES).sort());
});

describe.each(PLUGIN_LIST.map((plugin) => [plugin.kind, plugin] as const))("%s", (kind, plugin) => {
  const sample = SAMPLES[kind] as Sample;

  it("is called by its full names and its functions, and by no other tool's", () => {
    const full = plugin.namespace ? fullNames(plugin.namespace) : [];
    const functions = (plugin.functions ?? []).map(({ name }) => name);
    for (const name of [...full, ...functions]) {
      const tools = PLUGIN_LIST.map((each) => each.tools?.get(name)).filter((tool) => tool !== undefined);
      expect(tools.map((tool) => tool.kind)).toEqual([kind]);
    }
    for (const name of full) {
      expect(PLUGINS.isInNamespace(name)).toBe(true);
      const tool = plugin.tools?.get(name);
      expect(tool && plugin.fullName?.(tool)).toBe(name);
      const { name: written } = PLUGINS.toFunctionCall({ name, arguments: "{}", output: "", step: "1" });
      expect(functions).toContain(written);
    }
    expect(PLUGINS.isInNamespace(sample.name)).toBe(plugin.namespace !== undefined);
  });

  it("shows a call in OpenAI's order, with events and an item of OpenAI's types", () => {
    const { events, state } = play(sample);
    expect(events.map(({ type }) => type)).toEqual([
      "response.output_item.added",
      ...sample.events,
      "response.output_item.done",
      ...(sample.result ? ["response.output_item.added", "response.output_item.done"] : []),
    ]);
    for (const event of events) expect(eventViolations(event)).toEqual([]);
    const [item, result] = state.output;
    if (sample.result) expect(result).toMatchObject(sample.result);
    if (sample.result) expect(memberViolations("ResponseOutputItem", copy(result))).toEqual([]);
    expect(item).toMatchObject({ ...sample.item, status: "completed" });
    expect(memberViolations("ResponseOutputItem", copy(item))).toEqual([]);
  });

  it("records a call in the form of the earliest logs", () => {
    const { pending, state } = play(sample);
    const called = { item: state.output[0]?.id, tool: sample.tool, name: sample.name };
    expect(copy(pending)).toEqual([{ ...called, arguments: sample.pieces.join("") }]);
  });

  it("shows a call that failed, and one that was cut off", () => {
    const failing = callsOf();
    failing.calls.begin(0, sample.written, sample.tool, sample.pieces.join(""));
    failing.calls.complete(true);
    answer(failing.calls, { output: "Error: no", failed: true });
    expect(failing.state.output[0]).toMatchObject({ status: sample.failed ?? "failed" });
    const cut = callsOf();
    cut.calls.begin(0, sample.written, sample.tool, sample.pieces.join(""));
    cut.calls.complete(true);
    cut.calls.close(false);
    expect(cut.state.output[0]).toMatchObject({ status: sample.cutOff ?? "incomplete" });
    expect(cut.events.at(-1)?.type).toBe("response.output_item.done");
    for (const event of [...failing.events, ...cut.events]) expect(eventViolations(event)).toEqual([]);
  });

  it("continues after a crash: with a call that the model writes, and with one that waits to be run", () => {
    const whole = play(sample).state.output;
    const [first = "", second = ""] = sample.pieces;

    const before = callsOf();
    before.calls.begin(0, sample.written, sample.tool);
    before.calls.append(0, first);
    const writing = callsOf(copy(before.state.output));
    // A call that is shown only when it is complete begins again, with its whole text.
    if (!writing.calls.resume(7, sample.written, sample.tool)) {
      writing.calls.begin(7, sample.written, sample.tool, first);
    }
    writing.calls.append(7, second);
    writing.calls.complete(true);
    answer(writing.calls, sample.outcome);
    expect(writing.state.output).toEqual(whole);

    before.calls.append(0, second);
    before.calls.complete(true);
    const waiting = callsOf(copy(before.state.output), copy([...before.calls.pending.values()]));
    answer(waiting.calls, sample.outcome);
    expect(waiting.state.output).toEqual(whole);
  });

  it("is restored from its record, or else from its item", () => {
    const [output] = play(sample).state.output;
    const item = inputItem.parse(copy(output)) as Item;
    const kept = { name: sample.name, arguments: sample.pieces.join(""), output: sample.outcome.output, step: "1.0" };
    expect(PLUGINS.exchangeOf(item, { item: item.id ?? "", messages: [], exchange: kept }, [item])).toBe(kept);
    const told = sample.exchange && { ...sample.exchange, step: item.id };
    expect(PLUGINS.exchangeOf(item, undefined, [item])).toEqual(told);
  });
});

it("alone restores an item of its type", () => {
  const types = PLUGIN_LIST.flatMap(({ exchanges }) => Object.keys(exchanges ?? {}));
  expect([...new Set(types)]).toEqual(types);
});

it("a search for tools is restored with the output after it", () => {
  const { output } = play(SAMPLES.tool_search as Sample).state;
  const items = copy(output).map((item) => inputItem.parse(item) as Item);
  expect(PLUGINS.exchangeOf(items[0] as Item, undefined, items)).toMatchObject({
    name: "tool_search",
    arguments: '{"query":"owls"}',
    output: "These tools can be called now:\n- hoot: Hoots.",
  });
});

describe("a call that needs approval", () => {
  const tool = { kind: "mcp", label: "docs", name: "look", approval: true } as CalledTool;

  it("is a request to the client instead of a call; after approval it is complete", () => {
    const asking = callsOf();
    asking.calls.begin(0, "docs__look", tool);
    asking.calls.append(0, "{}");
    asking.calls.complete(true);
    expect(asking.calls.pending.size).toBe(0);
    expect(asking.state.output).toMatchObject([{ type: "mcp_approval_request", name: "look", arguments: "{}" }]);
    const approved = callsOf();
    const call = { ...tool, approval: false };
    approved.calls.addApproved({ tool: call, name: "docs__look", arguments: "{}", request: "mcpr_a" });
    answer(approved.calls, { output: "found", failed: false });
    expect(approved.state.output).toMatchObject([{ type: "mcp_call", approval_request_id: "mcpr_a", arguments: "{}" }]);
    for (const event of [...asking.events, ...approved.events]) expect(eventViolations(event)).toEqual([]);
  });

  it("reaches the model if the client has refused it", () => {
    const request = { type: "mcp_approval_request", id: "mcpr_a", server_label: "docs", name: "look", arguments: "{}" };
    const refusal = { type: "mcp_approval_response", approval_request_id: "mcpr_a", approve: false, reason: "No." };
    const items = [request, refusal].map((item) => inputItem.parse(item) as Item);
    expect(PLUGINS.exchangeOf(items[1] as Item, undefined, items)).toEqual({
      name: "docs__look",
      arguments: "{}",
      output: "The user did not approve this call. Reason: No.",
      step: "mcpr_a",
    });
  });
});
