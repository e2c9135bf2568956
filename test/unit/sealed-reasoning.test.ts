import type { Item } from "@responses-edge/responses-api/items/registry";
import type { ModelDelta, Replay } from "@responses-edge/turn/contract/engine";
import { openReasoning, type ReasoningSeal } from "@responses-edge/turn/sealed-content/sealed-reasoning";
import { createSealer } from "@responses-edge/turn/sealed-content/sealer";
import type { Sealer } from "@responses-edge/turn/sealed-content/sealing";
import { describe, expect, it } from "vitest";
import { eventsOf, newOutput } from "./turn-rig.ts";

/** A sealer that does not encrypt, so that tests can read the content. */
const readable: Sealer = {
  seal: (_, payload) => JSON.stringify(payload),
  open: (_, blob) => (blob.startsWith("{") ? { payload: JSON.parse(blob) as unknown } : { reason: "unreadable" }),
};
const HARMONY: ReasoningSeal = { sealer: readable, engine: "harmony" };
const CHAT: ReasoningSeal = { sealer: readable, engine: "chat" };

/** The engine's report of a gpt-oss message that has become an item. */
function message(index: number, itemKind: "reasoning" | "message" | "call", text: string): ModelDelta[] {
  return [{ kind: "item_done" }, { kind: "message", index, itemKind, message: { raw: text } }];
}

const think = (index: number, text: string): ModelDelta[] => [
  { kind: "reasoning", text },
  ...message(index, "reasoning", text),
];
const say = (index: number, text: string): ModelDelta[] => [{ kind: "text", text }, ...message(index, "message", text)];
const callOf = (index: number, name: string, text: string): ModelDelta[] => [
  { kind: "tool_call", index: 0, name, arguments: text },
  ...message(index, "call", text),
];

function built(deltas: readonly ModelDelta[], seal: ReasoningSeal | undefined = HARMONY) {
  const rig = newOutput({}, { secrets: { seal } });
  for (const delta of deltas) rig.output.round.apply(delta);
  return rig;
}

/** The sealed content of each reasoning item. */
function sealedIn({ state }: Pick<ReturnType<typeof built>, "state">): unknown[] {
  return state.output.flatMap((item) =>
    item.type === "reasoning" ? [JSON.parse(item.encrypted_content ?? "null") as unknown] : [],
  );
}

/** The events of items, without deltas and parts. */
function order(lines: readonly string[]): string[] {
  return eventsOf(lines).flatMap((event) =>
    event.type === "response.output_item.added" || event.type === "response.output_item.done"
      ? [`${event.type === "response.output_item.done" ? "done" : "added"} ${event.item.type}`]
      : [],
  );
}

describe("the sealed content of reasoning", () => {
  it("is its text for a chat model", () => {
    const rig = built(
      [
        { kind: "reasoning", text: "Hm" },
        { kind: "reasoning", text: "m." },
        { kind: "text", text: "Hi" },
      ],
      CHAT,
    );
    expect(sealedIn(rig)).toEqual([{ v: 1, engine: "chat", text: "Hmm." }]);
  });

  it("is its messages, with the following call, which is done after it", () => {
    const rig = built([...think(0, "a"), ...callOf(1, "f", '{"x": 1}')]);
    const [, call] = rig.state.output;
    if (call?.type !== "function_call") throw new Error("Expected a call.");
    const calls = [{ item: call.id, call_id: call.call_id, arguments: '{"x": 1}', messages: [{ raw: '{"x": 1}' }] }];
    expect(sealedIn(rig)).toEqual([{ v: 1, engine: "harmony", messages: [{ raw: "a" }], calls }]);
    expect(order(rig.lines)).toEqual([
      "added reasoning",
      "added function_call",
      "done reasoning",
      "done function_call",
    ]);
  });

  it("does not wait for items other than the client's calls", () => {
    const text = built([...think(0, "a"), ...say(1, "b"), ...think(2, "c"), ...callOf(3, "python", "1")]);
    expect(order(text.lines).slice(0, 6)).toEqual([
      "added reasoning",
      "done reasoning",
      "added message",
      "done message",
      "added reasoning",
      "done reasoning",
    ]);
    expect(sealedIn(text)).toMatchObject([{ messages: [{ raw: "a" }] }, { messages: [{ raw: "c" }] }]);
  });

  it("has the hosted calls as the model saw them since the previous reasoning, and no state of a tool", () => {
    const { output, state } = built([...think(0, "a"), ...callOf(1, "python", "1 + 1")]);
    output.round.end();
    const [call] = output.calls.pending.values();
    if (!call) throw new Error("Expected a call.");
    output.beginAnswering([]);
    output.calls.start(call);
    const exchange = { name: "python", arguments: "1 + 1", output: "2", step: "s" };
    const messages = [{ raw: "2" }];
    output.calls.finish(
      call,
      { output: "2", failed: false },
      { item: call.item, exchange: { ...exchange, memory: 1 }, messages },
    );
    output.nextRound();
    for (const delta of [...think(0, "b"), ...say(1, "Two.")]) output.round.apply(delta);
    expect(sealedIn({ state })).toMatchObject([
      { messages: [{ raw: "a" }] },
      { messages: [{ raw: "b" }], calls: [{ item: call.item, messages: [{ raw: "1 + 1" }, { raw: "2" }], exchange }] },
    ]);
    expect(JSON.stringify(sealedIn({ state }))).not.toContain("memory");
  });

  it("exists for reasoning that was cut off, but not in a failed turn", () => {
    const cut = (status: "incomplete" | "failed") => {
      const rig = built([
        { kind: "reasoning", text: "a" },
        { kind: "message", index: 0, itemKind: "reasoning", message: { raw: "a" } },
      ]);
      const reason = "max_output_tokens" as const;
      rig.output.close(status === "failed" ? { status: "cancelled" } : { status, reason });
      return sealedIn(rig);
    };
    expect(cut("incomplete")).toMatchObject([{ messages: [{ raw: "a" }] }]);
    expect(cut("failed")).toEqual([null]);
  });

  it("is left out if it would be too long", () => {
    const rig = newOutput(
      {},
      { secrets: { seal: { ...CHAT, sealer: { ...readable, seal: () => "x".repeat(2_000_000) } } } },
    );
    for (const delta of [
      { kind: "reasoning", text: "a" },
      { kind: "text", text: "b" },
    ] as const)
      rig.output.round.apply(delta);
    expect(rig.state.output[0]).not.toHaveProperty("encrypted_content");
  });
});

describe("returned reasoning", () => {
  const thought = (sealed: object | string, fields: object = {}): Item => ({
    type: "reasoning",
    summary: [],
    status: "completed",
    encrypted_content: typeof sealed === "string" ? sealed : JSON.stringify(sealed),
    ...fields,
  });
  const call = (call_id: string, json: string, id?: string): Item => ({
    type: "function_call",
    status: "completed",
    call_id,
    name: "f",
    arguments: json,
    ...(id && { id }),
  });
  const open = (
    input: Item[],
    seal?: ReasoningSeal,
    { history = [], replays = [] }: { history?: Item[]; replays?: Replay[] } = {},
  ) => openReasoning({ history, replays, input }, seal);
  const sealed = (text: string, ...calls: [id: string, json: string][]) => ({
    v: 1,
    engine: "harmony",
    messages: [{ raw: text }],
    calls: calls.map(([id, json]) => ({ item: `fc_${id}`, call_id: id, arguments: json, messages: [{ raw: json }] })),
  });

  it("is replaced by its messages, without ids and with the same id twice, and so are its sealed calls", () => {
    const a = sealed("a", ["c1", '{"x": 1}']);
    const b = sealed("b", ["c2", "{}"]);
    const items = [
      thought(a),
      call("c1", '{"x":1}'),
      thought(b, { id: "rs_1" }),
      call("c2", "{}"),
      thought(b, { id: "rs_1" }),
    ];
    const { input, replays, removed } = open(items, HARMONY);
    expect(input.map((item) => replays.find((replay) => replay.item === item.id)?.messages)).toEqual([
      [{ raw: "a" }],
      [{ raw: '{"x": 1}' }],
      [{ raw: "b" }],
      [{ raw: "{}" }],
      [{ raw: "b" }],
    ]);
    expect(new Set(input.map(({ id }) => id)).size).toBe(5);
    expect(removed).toEqual([]);
    expect(JSON.stringify(input)).not.toContain("encrypted_content");
  });

  it("does not replace a call that the client has changed, or one that this server has stored", () => {
    const kept = { item: "fc_2", messages: [{ raw: "kept" }] };
    const history = [thought(sealed("a", ["c1", "{}"], ["c2", "{}"])), call("c1", '{"y":1}'), call("c2", "{}", "fc_2")];
    const past = open([], HARMONY, { history, replays: [kept] });
    expect(past.replays).toEqual([kept, { item: past.history[0]?.id, messages: [{ raw: "a" }] }]);
  });

  it("restores the hosted calls as the model saw them, by their ids", () => {
    const exchange = { name: "python", arguments: "1 + 1", output: "2", step: "s" };
    const item: Item = {
      type: "code_interpreter_call",
      id: "ci_1",
      code: "1 + 1",
      container_id: "auto",
      outputs: null,
      status: "completed",
    };
    const content = { v: 1, engine: "chat", text: "b", calls: [{ item: "ci_1", messages: [], exchange }] };
    const { input, replays } = open([item, thought(content)], CHAT);
    expect(input).toMatchObject([item, { content: [{ text: "b" }] }]);
    expect(replays).toEqual([{ item: "ci_1", messages: [], exchange }]);
  });

  it.each<[what: string, item: Item, seal: ReasoningSeal | undefined, reason: string]>([
    ["without keys", thought(sealed("a")), undefined, "organization_mismatch"],
    ["of nobody here", thought("gAAA"), HARMONY, "organization_mismatch"],
    ["of a later version", thought({ v: 2 }), HARMONY, "organization_mismatch"],
    ["of another engine's", thought(sealed("a")), CHAT, "model_mismatch"],
  ])("is reported if it cannot be decrypted: %s", (_, item, seal, reason) => {
    const { input, removed } = open([{ ...item, id: "rs_1" }, call("c", "{}")], seal);
    expect(input.map(({ type }) => type)).toEqual(["function_call"]);
    expect(removed).toEqual([{ type: "reasoning", id: "rs_1", action: "removed", reason }]);
    const text = { content: [{ type: "reasoning_text", text: "a" }] };
    expect(open([{ ...item, ...text } as Item], seal)).toMatchObject({ input: [text], removed: [] });
  });

  it("is refused if it exceeds a prompt's limit", () => {
    const large = thought({ v: 1, engine: "chat", text: "x".repeat(5_000_000) });
    expect(() => open([large, large, large], CHAT)).toThrow(
      expect.objectContaining({ code: "context_length_exceeded" }),
    );
  });

  it("in 10,000 changed items cannot be decrypted, and causes no error, in bounded time", () => {
    const sealer = createSealer([{ kid: "k", secret: new Uint8Array(32) }], "acme", "m");
    if (!sealer) throw new Error("Expected a sealer.");
    const blob = sealer.seal("reasoning", { v: 1, engine: "chat", text: "secret" });
    const items = Array.from({ length: 10_000 }, (_, index) => {
      const at = index % blob.length;
      const other = String.fromCharCode(33 + ((blob.charCodeAt(at) - 32 + (index % 93)) % 94));
      return thought(other === blob[at] ? `${blob}${index}` : blob.slice(0, at) + other + blob.slice(at + 1), {
        id: `rs_${index}`,
      });
    });
    const { input, removed } = open(items, { sealer, engine: "chat" });
    expect(input).toEqual([]);
    // All are left out, and a response names the first.
    expect(removed).toHaveLength(1_000);
  });
});
