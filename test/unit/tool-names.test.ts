import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { inputItem } from "@responses-edge/responses-api/items/registry";
import { ClientTools, flatName } from "@responses-edge/responses-api/tool-names";
import { toolChoice, tools } from "@responses-edge/responses-api/tools";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { ModelDelta } from "@responses-edge/turn/contract/engine";
import { waitsForClient } from "@responses-edge/turn/decide";
import { withConfiguration, withLoadedTools } from "@responses-edge/turn/loaded-tools";
import { matchOutputs } from "@responses-edge/turn/prompt";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import { describe, expect, it } from "vitest";
import { newOutput, toldBy } from "./turn-rig.ts";

/** Tools that the client runs: their names, their calls, and tools from items. */

const fn = (name: string, more: object = {}) => ({ type: "function", name, ...more });
const namespace = (name: string, ...members: object[]) => ({
  type: "namespace",
  name,
  description: "d",
  tools: members,
});
const request = (body: object) => parse(createRequest, { model: "m", input: "?", ...body });
const items = (...sent: object[]) => sent.map((item) => parse(inputItem, item) as never);

describe("flat names", () => {
  it("consist of the namespace's and the tool's, with a hash if they are too long", () => {
    expect(flatName(undefined, "a")).toBe("a");
    expect(flatName("mcp__files", "read")).toBe("mcp__files__read");
    const long = flatName("n".repeat(60), "read");
    expect(long).toMatch(/^n{47}_[0-9a-f]{16}$/);
    expect(flatName("n".repeat(60), "write")).not.toBe(long);
  });

  it("must differ: two tools with the same name for the model are a 400 that names both", () => {
    const clash = { tools: [namespace("a", fn("b__c")), namespace("a__b", fn("c"))] };
    expect(() => request(clash)).toThrow("The tools 'a.b__c' and 'a__b.c' would both be 'a__b__c' to the model.");
    expect(() => request({ tools: [fn("a__b"), namespace("a", fn("b"))] })).toThrow("'a__b' and 'a.b'");
    expect(() => request({ tools: [fn("a"), { type: "custom", name: "a" }] })).toThrow("'a' is used twice");
    expect(() => request({ tools: [{ type: "tool_search" }, fn("tool_search")] })).toThrow("used twice");
  });

  it("of namespaces count against the limit of tools", () => {
    const many = (count: number) => Array.from({ length: count }, (_, index) => fn(`f${index}`));
    expect(request({ tools: [namespace("a", ...many(1_000)), fn("x")] }).tools).toHaveLength(2);
    expect(() => request({ tools: [namespace("a", ...many(1_000)), namespace("b", ...many(25))] })).toThrow("1024");
  });
});

describe("a choice", () => {
  const clients = new ClientTools(
    parse(tools, [
      namespace("a", fn("x"), { type: "custom", name: "y" }),
      namespace("b", fn("x")),
      { type: "shell" },
      { type: "custom", name: "z" },
    ]),
  );
  const named = (choice: object) => clients.named(parse(toolChoice, choice))?.flatName;

  it("names a tool by its own name, its namespace's too, or the model's", () => {
    expect(named({ type: "custom", name: "z" })).toBe("z");
    expect(named({ type: "custom", name: "y" })).toBe("a__y");
    expect(named({ type: "custom", custom: { name: "y" } })).toBe("a__y");
    expect(named({ type: "function", name: "x", namespace: "b" })).toBe("b__x");
    expect(named({ type: "function", name: "b.x" })).toBe("b__x");
    expect(named({ type: "function", name: "a__x" })).toBe("a__x");
    expect(named({ type: "shell" })).toBe("shell");
  });

  it("is refused if it could mean two tools, or has another type", () => {
    expect(named({ type: "function", name: "x" })).toBeUndefined();
    expect(named({ type: "function", name: "z" })).toBeUndefined();
    expect(() =>
      request({ tools: [{ type: "custom", name: "z" }], tool_choice: { type: "custom", name: "y" } }),
    ).toThrow("Tool choice 'y' not found in 'tools' parameter.");
  });

  it("of several permits those, and all of a namespace", () => {
    const choice = (...chosen: object[]) => parse(toolChoice, { type: "allowed_tools", mode: "auto", tools: chosen });
    const offered = (...chosen: object[]) => clients.offered(choice(...chosen)).map((tool) => tool.flatName);
    expect(offered({ type: "namespace", name: "a" }, { type: "shell" })).toEqual(["a__x", "a__y", "shell"]);
    expect(offered({ type: "custom", name: "z" })).toEqual(["z"]);
  });
});

describe("loaded tools", () => {
  const load = (...brought: object[]) => ({ type: "additional_tools", role: "developer", tools: brought });
  const namesOf = (loaded: ReturnType<typeof withLoadedTools>) => [...ClientTools.of(loaded.tools).byName.keys()];

  it("come after the request's own, each once, in their namespace", () => {
    const asked = request({ tools: [namespace("a", fn("x")), fn("f", { description: "own" })] });
    const loaded = withLoadedTools(
      asked,
      items(load(fn("g"), fn("f", { description: "brought" })), {
        type: "tool_search_output",
        call_id: "c",
        execution: "client",
        tools: [namespace("a", fn("y", { defer_loading: true })), namespace("b", fn("x"))],
      }),
    );
    expect(namesOf(loaded)).toEqual(["a__x", "a__y", "f", "g", "b__x"]);
    expect(ClientTools.of(loaded.tools).get("f")?.tool).toMatchObject({ description: "own" });
    expect(withLoadedTools(loaded, []).tools).toBe(loaded.tools);
  });

  it("are absent before a search if they are deferred, unless the choice names them", () => {
    const deferred = [fn("f", { defer_loading: true }), namespace("a", fn("x"), fn("y", { defer_loading: true }))];
    expect(namesOf(withLoadedTools(request({ tools: [...deferred, { type: "tool_search" }] }), []))).toEqual(["a__x"]);
    expect(namesOf(withLoadedTools(request({ tools: deferred }), []))).toEqual(["f", "a__x", "a__y"]);
    const forced = request({
      tools: [...deferred, { type: "tool_search" }],
      tool_choice: { type: "function", name: "f" },
    });
    expect(namesOf(withLoadedTools(forced, []))).toEqual(["f", "a__x"]);
  });

  it("may be chosen, and a choice of a missing tool is a 400", () => {
    const asked = request({ input: [load(fn("g"))], tool_choice: { type: "function", name: "g" } });
    expect(namesOf(withLoadedTools(asked, items(load(fn("g")))))).toEqual(["g"]);
    expect(() => withLoadedTools(asked, [])).toThrow("Tool choice 'g' not found");
  });

  it("are limited: the oldest are left out", () => {
    const many = (from: number) => load(...Array.from({ length: 600 }, (_, index) => fn(`f${from + index}`)));
    const names = namesOf(withLoadedTools(request({ tools: [fn("own")] }), items(many(0), many(600))));
    expect(names).toHaveLength(1024);
    expect([names[0], names.at(-1)]).toEqual(["own", "f1199"]);
  });

  it("do not include tools with credentials", () => {
    expect(() => items(load({ type: "mcp", server_label: "a", server_url: "https://a.example/mcp" }))).toThrow(
      "A tool of type 'mcp' is supported in the request's own 'tools' only.",
    );
  });
});

describe("a configuration_update", () => {
  const update = (effort: string) => ({ type: "configuration_update", reasoning: { effort } });
  it("of the input overrides the request; one of earlier turns applies to fields that the request leaves out", () => {
    const effort = (asked: object, history: object[], input: object[]) =>
      withConfiguration(request(asked), items(...history), items(...input)).reasoning?.effort;
    expect(effort({}, [update("low"), update("high")], [])).toBe("high");
    expect(effort({ reasoning: { effort: "medium" } }, [update("low")], [])).toBe("medium");
    expect(effort({ reasoning: { effort: "medium" } }, [], [update("low")])).toBe("low");
  });
});

describe("an output without a call_id", () => {
  const call = (id: string, name: string, more = {}) => ({
    type: "function_call",
    call_id: id,
    name,
    arguments: "{}",
    ...more,
  });
  const output = (name: string, more = {}) => ({ type: "function_call_output", name, output: "o", ...more });
  it("answers the first open call of its name and namespace", () => {
    const history = items(
      call("1", "f"),
      { type: "function_call_output", call_id: "1", output: "" },
      call("2", "f"),
      call("3", "f"),
    );
    const matched = matchOutputs(
      history,
      items(output("f"), call("4", "f", { namespace: "n" }), output("f", { namespace: "n" }), output("f"), output("g")),
    );
    expect(matched.map((item) => Reflect.get(item, "call_id"))).toEqual(["2", "4", "4", "3", ""]);
  });
});

describe("calls", () => {
  const call = (name: string | undefined, json: string, index = 0): ModelDelta => ({
    kind: "tool_call",
    index,
    arguments: json,
    ...(name !== undefined && { name, callId: "c" }),
  });
  const say = (...deltas: ModelDelta[]) => {
    const rig = newOutput();
    for (const delta of deltas) rig.output.round.apply(delta);
    rig.output.round.end();
    return rig;
  };

  it("of a custom tool have its input, streamed while it is written", () => {
    const rig = say(call("apply", ""), call(undefined, '{"input": "a\\'), call(undefined, 'nb"}'));
    expect(toldBy(rig.lines)).toEqual([
      "output_item.added",
      "custom_tool_call_input.delta a",
      "custom_tool_call_input.delta \nb",
      "custom_tool_call_input.done",
      "output_item.done",
    ]);
    expect(rig.state.output).toMatchObject([
      { type: "custom_tool_call", name: "apply", input: "a\nb", status: "completed" },
    ]);
    expect(waitsForClient(rig.state)).toBe(true);
  });

  it("of a tool in a namespace have both names", () => {
    const rig = say(call("agents__close", "{}"));
    expect(rig.state.output).toMatchObject([{ type: "function_call", name: "close", namespace: "agents" }]);
  });

  it("of a shell appear command by command, once they are known", () => {
    const rig = say(call("shell", '{"commands": ["ls",'), call(undefined, '"pwd"]}'));
    expect(toldBy(rig.lines)).toEqual([
      "output_item.added",
      ...["ls", "pwd"].flatMap((command) => [
        "shell_call_command.added",
        `shell_call_command.delta ${command}`,
        "shell_call_command.done",
      ]),
      "output_item.done",
    ]);
    expect(rig.state.output).toMatchObject([
      { type: "shell_call", call_id: "c", action: { commands: ["ls", "pwd"], timeout_ms: null }, environment: null },
    ]);
  });

  it.each([
    ["tool_search", '{"query":"q"}', { type: "tool_search_call", execution: "client", arguments: { query: "q" } }],
    [
      "local_shell",
      '{"command":["ls"]}',
      { type: "local_shell_call", action: { type: "exec", command: ["ls"], env: {} } },
    ],
    [
      "apply_patch",
      '{"type":"delete_file","path":"a"}',
      { type: "apply_patch_call", operation: { type: "delete_file", path: "a" } },
    ],
  ])("of %s are shown when complete", (name, json, item) => {
    const rig = say(call(name, json));
    expect(toldBy(rig.lines)).toEqual(["output_item.added", "output_item.done"]);
    expect(rig.state.output).toMatchObject([{ ...item, call_id: "c", status: "completed" }]);
    expect(waitsForClient(rig.state)).toBe(true);
  });

  it("that broke off are shown as incomplete, or not at all", () => {
    const rig = newOutput();
    rig.output.round.apply(call("apply", '{"input": "ab'));
    rig.output.round.apply(call("shell", '{"commands": ["l', 1));
    rig.output.close({ status: "incomplete", reason: "max_output_tokens" });
    expect(rig.state.output).toMatchObject([{ type: "custom_tool_call", input: "ab", status: "incomplete" }]);
  });

  it("continue after a crash", () => {
    const before = newOutput();
    before.output.round.apply(call("apply", '{"input": "a\\'));
    const state = readLoggedTurn(before.lines);
    expect(state.output).toMatchObject([{ type: "custom_tool_call", input: "a", status: "in_progress" }]);
    const after = newOutput({ state });
    after.output.round.apply({ kind: "resumed_call", index: 0, name: "apply", arguments: '{"input": "a\\' });
    after.output.round.apply(call(undefined, 'nb"}'));
    after.output.round.end();
    expect(state.output).toMatchObject([{ input: "a\nb", status: "completed" }]);
  });

  it("that no client has seen yet begin again with all of their output", () => {
    const rig = newOutput();
    rig.output.round.apply({ kind: "resumed_call", index: 0, name: "shell", arguments: '{"commands":' });
    rig.output.round.apply(call(undefined, '["ls"]}'));
    rig.output.round.end();
    expect(rig.state.output).toMatchObject([{ type: "shell_call", action: { commands: ["ls"] } }]);
  });

  it("that no client has seen yet are dropped if the model is asked again", () => {
    const rig = newOutput({}, { request: { parallel_tool_calls: false } });
    rig.output.round.apply(call("shell", '{"commands":'));
    rig.output.round.apply(call("browser_search", '{"qu', 1));
    rig.output.round.forgetUnshown();
    rig.output.round.apply(call("shell", '{"commands":["ls"]}'));
    rig.output.round.end();
    expect(rig.state.output).toMatchObject([{ type: "shell_call", action: { commands: ["ls"] } }]);
  });
});

describe("tools", () => {
  it("are echoed with all fields of the request", () => {
    const sent = [
      {
        type: "function",
        name: "f",
        description: null,
        parameters: null,
        strict: null,
        output_schema: { type: "object" },
        defer_loading: true,
        allowed_callers: ["direct", "programmatic"],
        async: false,
      },
      { type: "custom", name: "c", format: { type: "grammar", syntax: "regex", definition: "a+" }, async: false },
      { type: "tool_search", execution: "client", description: "d", parameters: { type: "object" } },
      { type: "shell", environment: { type: "local", skills: [{ name: "s", description: "d", path: "/s" }] } },
      { type: "apply_patch", allowed_callers: ["direct"] },
      {
        type: "web_search",
        external_web_access: true,
        search_content_types: ["text", "image"],
        image_settings: { n: 1 },
      },
    ];
    expect(parse(tools, sent)).toEqual(sent);
  });
});
