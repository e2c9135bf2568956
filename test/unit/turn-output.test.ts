import { asLink, CitationMarks } from "@responses-edge/hosted-tools/browser/citation-marks";
import { contextLengthExceeded } from "@responses-edge/responses-api/errors";
import { tools } from "@responses-edge/responses-api/tools";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { ModelDelta } from "@responses-edge/turn/contract/engine";
import { waitsForClient } from "@responses-edge/turn/decide";
import { type Beginning, type BegunCallFacts, beginningOf, type CallRules } from "@responses-edge/turn/model-output";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import { describe, expect, it } from "vitest";
import { newOutput, toldBy } from "./turn-rig.ts";

/** Each part of the output, by its events and its state. Its input is the model's deltas. */

type Rig = ReturnType<typeof newOutput>;

function say({ output }: Rig, ...deltas: ModelDelta[]): void {
  for (const delta of deltas) output.round.apply(delta);
  output.round.recordBuffered();
}

const text = (said: string): ModelDelta => ({ kind: "text", text: said });
const call = (index: number, name: string | undefined, json: string): ModelDelta => ({
  kind: "tool_call",
  index,
  arguments: json,
  ...(name !== undefined && { name }),
});

const PART = ["output_item.added", "content_part.added"];
const PART_DONE = ["content_part.done", "output_item.done"];

describe("a call that begins", () => {
  const any: CallRules = { allowed: undefined, parallel: true };
  const one: CallRules = { allowed: new Set(["f"]), parallel: false };
  const begun = { name: "f", isServers: false, mayRun: false, calls: 0 };
  it.each<[what: string, Partial<BegunCallFacts>, CallRules, Beginning]>([
    ["the client's", {}, any, "client"],
    ["one without a name", { name: "" }, any, "dropped"],
    ["one that the choice leaves out", { name: "g" }, one, "dropped"],
    ["a second one where one is allowed", { calls: 1 }, one, "dropped"],
    ["this server's", { isServers: true, mayRun: true }, any, "server"],
    ["one beyond what the turn may make", { isServers: true }, any, "ignored"],
    ["a second one of this server's", { isServers: true, mayRun: true, calls: 1 }, one, "ignored"],
  ])("is: %s", (_what, facts, rules, expected) => {
    expect(beginningOf({ ...begun, ...facts }, rules)).toBe(expected);
  });
});

describe("text parts", () => {
  it("have their events in order: item, part, deltas, and the end of each", () => {
    const rig = newOutput();
    say(rig, text("Hel"), text("lo"));
    rig.output.round.end();
    expect(toldBy(rig.lines)).toEqual([
      ...PART,
      "output_text.delta Hel",
      "output_text.delta lo",
      "output_text.done",
      ...PART_DONE,
    ]);
    expect(rig.state.output).toMatchObject([{ type: "message", status: "completed", content: [{ text: "Hello" }] }]);
  });

  it("end when another item begins, except that a refusal follows text in one message", () => {
    const rig = newOutput();
    say(rig, { kind: "reasoning", text: "hm" }, text("No"), { kind: "refusal", text: "I will not" });
    rig.output.round.end();
    expect(rig.state.output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    expect(rig.state.output[1]).toMatchObject({ content: [{ type: "output_text" }, { refusal: "I will not" }] });
    expect(rig.state.deltas).toEqual({ all: 3, reasoning: 1 });
  });

  it("hold back a possible citation, and count it only when it is shown", () => {
    const page = { url: "https://example.com/", title: "E" };
    const rig = newOutput({}, { session: { citations: () => new CitationMarks(() => asLink(page)) } });
    say(rig, text("so 【1†L1"));
    expect(rig.state).toMatchObject({ buffered: "【1†L1", openPart: { text: "so " }, deltas: { all: 1 } });
    expect(rig.output.round.partialItems).toMatchObject([{ content: [{ text: "so 【1†L1" }] }]);
    say(rig, text("】."));
    expect(rig.state.openPart?.annotations).toHaveLength(1);
    expect(rig.state.buffered).toBe("");
  });

  it("are incomplete in a turn that is cut off, and settled without an event if it fails", () => {
    const cut = newOutput();
    say(cut, text("a"));
    cut.output.close({ status: "incomplete", reason: "max_output_tokens" });
    expect(cut.state.output).toMatchObject([{ status: "incomplete", content: [{ text: "a" }] }]);
    expect(toldBy(cut.lines).at(-1)).toBe("output_item.done");

    const failed = newOutput();
    say(failed, text("a"));
    failed.output.close({ status: "failed", error: contextLengthExceeded("Too long.") });
    expect(failed.state.output).toMatchObject([{ status: "incomplete", content: [{ text: "a" }] }]);
    expect(toldBy(failed.lines).at(-1)).toBe("output_text.delta a");
  });
});

describe("calls that the client answers", () => {
  it("may be interleaved, and end with the round", () => {
    const rig = newOutput();
    say(rig, call(0, "f", '{"a"'), call(1, "g", "{"), call(0, undefined, ":1}"), call(1, undefined, "}"));
    rig.output.round.end();
    expect(rig.state.output).toMatchObject([
      { name: "f", arguments: '{"a":1}', status: "completed" },
      { name: "g", arguments: "{}", status: "completed" },
    ]);
    expect(waitsForClient(rig.state)).toBe(true);
  });

  it("end when something else begins and their arguments are complete; later arguments are dropped", () => {
    const rig = newOutput();
    say(rig, call(0, "f", "{}"), text("and"), call(0, undefined, "{}"));
    expect(rig.state.output).toMatchObject([{ arguments: "{}", status: "completed" }, { type: "message" }]);
  });

  it("have arguments even if the model has given none", () => {
    const rig = newOutput();
    say(rig, call(0, "f", ""));
    rig.output.round.end();
    expect(toldBy(rig.lines)).toContain("function_call_arguments.delta {}");
  });

  it("are dropped if they are not allowed, or too many", () => {
    const rig = newOutput(
      {},
      {
        request: {
          tools: parse(tools, [
            { type: "function", name: "f" },
            { type: "function", name: "g" },
          ]),
          tool_choice: { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "f" }] },
          parallel_tool_calls: false,
        },
      },
    );
    say(rig, call(0, "g", "{}"), call(1, "f", "{}"), call(2, "f", "{}"));
    expect(rig.state.output).toMatchObject([{ name: "f" }]);
  });

  it("keep the model's own id once, and only a usable one", () => {
    const rig = newOutput({}, { usedCallIds: new Set(["used"]) });
    const withId = (index: number, callId: string): ModelDelta => ({
      kind: "tool_call",
      index,
      callId,
      name: "f",
      arguments: "{}",
    });
    say(rig, withId(0, "mine"), withId(1, "mine"), withId(2, "used"), withId(3, "x".repeat(65)));
    const ids = rig.state.output.map((item) => (item.type === "function_call" ? item.call_id : ""));
    expect(ids[0]).toBe("mine");
    expect(new Set([...ids, "used"]).size).toBe(5);
    expect(ids.every((id) => id.length <= 64)).toBe(true);
  });

  it("continue after a crash with the next arguments without a name", () => {
    const first = newOutput();
    say(first, call(0, "f", '{"a"'));
    const rig = newOutput({ state: readLoggedTurn(first.lines) });
    say(rig, call(7, undefined, ":1}"));
    rig.output.round.end();
    expect(rig.state.output).toMatchObject([{ arguments: '{"a":1}', status: "completed" }]);
    expect(toldBy(rig.lines)[0]).toBe("function_call_arguments.delta :1}");
  });
});

describe("calls that this server answers", () => {
  const outcome = { output: "42", failed: false };
  const answer = (item: string) => ({
    item,
    exchange: { name: "n", arguments: "{}", output: "42", step: "s" },
    messages: [],
  });

  it("wait for their answers when the model has finished them", () => {
    const rig = newOutput();
    say(rig, call(0, "wiki__ask", '{"q":1}'), call(1, "browser_search", '{"query":"x"}'));
    rig.output.round.end();
    const calls = [...rig.output.calls.pending.values()];
    expect(calls.map(({ tool }) => tool.kind)).toEqual(["mcp", "browser"]);
    rig.output.beginAnswering([]);
    for (const each of calls) {
      rig.output.calls.start(each);
      rig.output.calls.finish(each, outcome, answer(each.item));
    }
    const ids = calls.map(({ item }) => item);
    expect(rig.state.answering).toMatchObject({ answered: new Set(ids), dispatched: ids });
    expect(rig.state.output).toMatchObject([{ status: "completed", output: "42" }, { status: "completed" }]);
    rig.output.nextRound();
    expect(rig.state).toMatchObject({ rounds: 1, answering: undefined, round: { firstItem: 2, called: [] } });
  });

  it("are ignored beyond the turn's limit", () => {
    const rig = newOutput({}, { request: { max_tool_calls: 1 } });
    say(rig, call(0, "python", "1"), { kind: "item_done" }, call(1, "python", "2"));
    expect(rig.state.output).toHaveLength(1);
    expect(rig.output.calls).toMatchObject({ ignored: 1, left: 0 });
  });

  it("begin again after one that broke off, which then does not count", () => {
    const rig = newOutput({}, { request: { max_tool_calls: 1 } });
    say(rig, call(0, "wiki__ask", '{"q'));
    const [broken] = rig.output.round.partialItems;
    expect(rig.output.round.breakOff(broken?.id ?? "")).toEqual({ all: 1, reasoning: 0 });
    expect(rig.output.round.partialItems).toEqual([]);
    expect(rig.output.calls.left).toBeGreaterThan(0);
    say(rig, call(0, "wiki__ask", '{"q":1}'));
    expect(rig.state.output).toMatchObject([{ status: "incomplete" }, { status: "in_progress", arguments: '{"q":1}' }]);
  });
});

describe("lists of tools", () => {
  it("continue after a crash in the same item", () => {
    const first = newOutput();
    const index = first.output.beginList("wiki");
    const rig = newOutput({ state: readLoggedTurn(first.lines) });
    expect(rig.output.beginList("wiki")).toBe(index);
    rig.output.endList(index, { tools: [] }, "origin");
    expect(toldBy(rig.lines)).toEqual(["mcp_list_tools.completed", "output_item.done"]);
    expect(rig.state).toMatchObject({ openLists: [], replays: [{ origin: "origin" }] });
  });

  it("have failed if they do not fit, or are incomplete at the end of the turn", () => {
    const rig = newOutput({}, { outputLength: 70_000 });
    const large = { name: "t", input_schema: { text: "x".repeat(10_000) } };
    rig.output.endList(rig.output.beginList("large"), { tools: [large] as never }, "");
    rig.output.beginList("slow");
    rig.output.close({ status: "cancelled" });
    expect(toldBy(rig.lines)).toContain("mcp_list_tools.failed");
    expect(rig.state.output).toMatchObject([
      { error: expect.stringContaining("too many") },
      { error: expect.any(String) },
    ]);
  });
});

describe("raw messages", () => {
  const message = (index: number, itemKind?: "reasoning" | "message" | "call"): ModelDelta => ({
    kind: "message",
    index,
    message: { index },
    ...(itemKind && { itemKind }),
  });
  const messagesOf = ({ output }: Rig) => output.messages;

  it("are stored with their item, after those that led to it", () => {
    const rig = newOutput();
    say(rig, message(0), text("a"), message(1, "message"), message(2));
    const { id } = rig.state.output[0] ?? {};
    expect(messagesOf(rig)).toMatchObject({
      replays: [{ item: id, messages: [{ index: 0 }, { index: 1 }] }],
      left: { trailing: [{ index: 2 }] },
    });
  });

  it("are stored once, also if a continued generation gives them again", () => {
    const rig = newOutput();
    say(rig, text("a"), message(0, "message"), message(0, "message"));
    expect(messagesOf(rig).replays).toHaveLength(1);
  });

  it("belong to the state when their generation has ended, and answers follow them", () => {
    const rig = newOutput();
    say(rig, text("a"), message(0, "message"), message(1));
    rig.output.round.end();
    rig.output.beginAnswering([{ again: true }]);
    expect(messagesOf(rig).replays).toHaveLength(1);
    expect(rig.state.replays).toHaveLength(1);
    rig.output.nextRound();
    expect(messagesOf(rig).left.trailing).toEqual([{ index: 1 }, { again: true }]);
    expect(rig.state.askedAgain).toBe(1);
  });

  it("from before the turn are stored with its first input, or lead to its first item", () => {
    const previous = [{ before: true }];
    const withInput = newOutput({}, { request: { previous_input_messages: previous }, firstInput: "msg_in" });
    expect(messagesOf(withInput).replays).toEqual([{ item: "msg_in", messages: previous, before: true }]);
    const without = newOutput({}, { request: { previous_input_messages: previous } });
    say(without, text("a"), message(0, "message"));
    expect(messagesOf(without).replays).toMatchObject([{ messages: [{ before: true }, { index: 0 }] }]);
  });
});

describe("the size of the output", () => {
  it("counts texts twice if the sampled tokens are stored, too", () => {
    const once = newOutput({}, { outputLength: 70_000 });
    say(once, text("x".repeat(3_000)));
    expect(once.output.size.isFull).toBe(false);
    const twice = newOutput({}, { outputLength: 70_000 });
    say(twice, { kind: "sampled", sampled: { ids: [1] } }, text("x".repeat(3_000)));
    expect(twice.output.size.isFull).toBe(true);
  });
});

describe("an output without a reader", () => {
  it("keeps the same state, and can withdraw a round", () => {
    const rig = newOutput({}, { isUnread: true });
    say(rig, { kind: "reasoning", text: "hm" }, text("a"), call(0, "wiki__ask", "{"));
    expect(rig.state).toMatchObject({ deltas: { all: 3, reasoning: 1 }, sequence: 0 });
    expect(rig.output.round.withdraw()).toEqual({ all: 3, reasoning: 1 });
    expect(rig.state.output).toEqual([]);
    expect(rig.output.round.partialItems).toEqual([]);
  });
});
