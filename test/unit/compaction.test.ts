import { type CreateRequest, createRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import type { Item, OutputItem } from "@responses-edge/responses-api/items/registry";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { SUMMARY_ID, standingItems, standingPast } from "@responses-edge/turn/compacted-past";
import { thresholdOf } from "@responses-edge/turn/compaction";
import { cutInMiddle, selectKept } from "@responses-edge/turn/compaction-selection";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import { isRecord, recordLine } from "@responses-edge/turn/records";
import { responseBody } from "@responses-edge/turn/response";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import type { CompactionContent } from "@responses-edge/turn/sealed-content/sealing";
import { beforeEach, describe, expect, it } from "vitest";
import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import { assembleTurn, type Past, type TurnSpec } from "../../src/assembly/assemble-turn.ts";
import { type Config, loadConfig } from "../../src/config/index.ts";

function said(role: "user" | "developer" | "assistant", text: string, id?: string): Item {
  const own = id === undefined ? {} : { id };
  return role === "assistant"
    ? {
        type: "message",
        ...own,
        role,
        status: "completed",
        content: [{ type: "output_text", text, annotations: [], logprobs: [] }],
      }
    : { type: "message", ...own, role, status: "completed", content: [{ type: "input_text", text }] };
}

function call(id: string): Item {
  return { type: "function_call", call_id: id, name: "f", arguments: "{}", status: "completed" };
}

function output(id: string): Item {
  return { type: "function_call_output", call_id: id, output: "done", status: "completed" };
}

/** The texts of messages, and the types of other items. */
function told(items: readonly Item[]): string[] {
  return items.map((item) =>
    item.type === "message" ? item.content.map((part) => ("text" in part ? part.text : "")).join("") : item.type,
  );
}

const ROOM = { keptLength: 1_000, tailLength: 1_000 };

describe("the kept part of a history", () => {
  it("has the first instructions, the user's messages, and the unanswered items", () => {
    const { before, after } = selectKept(
      [
        said("developer", "Be kind."),
        said("user", "One."),
        said("assistant", "Two."),
        call("a"),
        output("a"),
        said("developer", "Be quick."),
        said("user", "Three."),
        call("b"),
        { type: "mcp_approval_request", id: "mcpr_1", server_label: "docs", name: "f", arguments: "{}" },
        { type: "mcp_approval_request", id: "mcpr_2", server_label: "docs", name: "f", arguments: "{}" },
        { type: "mcp_approval_response", approval_request_id: "mcpr_2", approve: false, reason: null },
        { type: "mcp_approval_request", id: "mcpr_3", server_label: "docs", name: "f", arguments: "{}" },
        { type: "mcp_approval_response", approval_request_id: "mcpr_3", approve: true, reason: null },
        said("user", "Four."),
      ],
      [],
      ROOM,
    );
    expect(told(before)).toEqual(["Be kind.", "One.", "Be quick.", "Three."]);
    expect(told(after)).toEqual([
      "function_call",
      "mcp_approval_request",
      "mcp_approval_request",
      "mcp_approval_response",
      "Four.",
    ]);
  });

  it("has the newest of the user's messages, and the beginning and end of the last that does not fit", () => {
    const items = [
      said("user", "0".repeat(400)),
      said("user", `a${"1".repeat(398)}b`),
      said("assistant", "x"),
      said("user", "2".repeat(400)),
      said("assistant", "y"),
    ];
    const [cut = "", whole, ...more] = told(selectKept(items, [], { keptLength: 600, tailLength: 0 }).before);
    expect(more).toEqual([]);
    expect(whole).toBe("2".repeat(400));
    expect(cut).toMatch(/^a1+\n\[… \d+ characters left out …\]\n1+b$/);
    expect(cut.length).toBeLessThan(300);
  });

  it("has repeated instructions once", () => {
    const items = [
      said("user", "One."),
      said("developer", "Be kind."),
      said("user", "Two."),
      said("developer", "Be kind."),
    ];
    const { before } = selectKept([...items, said("assistant", "x")], [], ROOM);
    expect(told(before)).toEqual(["One.", "Two.", "Be kind."]);
  });

  it("has no earlier summary, and no image", () => {
    const picture: Item = {
      type: "message",
      role: "user",
      status: "completed",
      content: [
        { type: "input_text", text: "Look:" },
        { type: "input_image", image_url: "data:image/png;base64,AAAA", detail: "auto" },
      ],
    };
    const { before } = selectKept([said("user", "Earlier.", SUMMARY_ID), picture, said("assistant", "x")], [], ROOM);
    expect(told(before)).toEqual(["Look:\n[image]"]);
  });

  it("has the beginning and end of a long question at the end", () => {
    const { before, after } = selectKept([said("user", "q".repeat(5_000))], [], ROOM);
    expect(before).toEqual([]);
    expect(told(after)[0]?.length).toBeLessThan(1_100);
  });

  it("has each server's newest list of tools, tools from items, and settings", () => {
    const list = (id: string, name: string): Item => ({
      type: "mcp_list_tools",
      id,
      server_label: "docs",
      tools: [{ name, input_schema: {} }],
    });
    const tool = { type: "function" as const, name: "f", description: null, parameters: null, strict: null };
    const { before, after } = selectKept(
      [
        list("mcpl_1", "old"),
        said("user", "One."),
        { type: "tool_search_output", call_id: null, execution: "server", status: "completed", tools: [tool] },
        { type: "configuration_update", reasoning: { effort: "low" } },
        { type: "configuration_update", reasoning: { effort: "high" } },
        said("assistant", "x"),
        said("user", "Two."),
        { type: "additional_tools", role: "developer", tools: [tool] },
      ],
      [list("mcpl_2", "new")],
      ROOM,
    );
    expect(before).toMatchObject([
      { id: "mcpl_2" },
      { type: "configuration_update", reasoning: { effort: "high" } },
      { type: "additional_tools", tools: [tool] },
      { type: "additional_tools", tools: [tool] },
      { type: "message" },
    ]);
    expect(told(after)).toEqual(["Two."]);
  });

  it("counts a hosted tool's answer, although its item does not show it", () => {
    const search: Item = {
      type: "web_search_call",
      id: "ws_1",
      action: { type: "search", query: "q" },
      status: "completed",
    };
    const exchange = { name: "browser.search", arguments: "{}", output: "x".repeat(5_000), step: "1" };
    const replays = [{ item: "ws_1", messages: [], exchange }];
    const items = [said("user", "One."), search];
    expect(selectKept(items, [], { ...ROOM, replays }).replacedLength).toBeGreaterThan(4_900);
    expect(selectKept(items, [], ROOM).replacedLength).toBeLessThan(100);
  });

  it("has no half characters", () => {
    expect(cutInMiddle("🦄".repeat(100), 51).isWellFormed()).toBe(true);
  });
});

describe("the threshold", () => {
  const compact = (...thresholds: (number | null)[]): CreateRequest => ({
    context_management: thresholds.map((compact_threshold) => ({ type: "compaction", compact_threshold })),
  });

  it.each([
    [compact(5_000), 8_192, 5_000],
    [compact(5_000, 2_000, null), 8_192, 2_000],
    [compact(null), 10_000, 8_000],
    [{ ...compact(null), max_output_tokens: 3_000 }, 10_000, 5_000],
    [{ ...compact(null), max_output_tokens: 9_000 }, 10_000, 1_000],
    [{ ...compact(null), max_output_tokens: 900 }, 1_000, 500],
  ])("of %j in a window of %i is %i", (request, window, threshold) => {
    expect(thresholdOf(request, window)).toBe(threshold);
  });
});

describe("the content of a compaction item", () => {
  const content: CompactionContent = { before: [said("user", "One.")], summary: "Said.", after: [call("a")] };
  const secret = new Uint8Array(32).fill(7);
  const sealed = { encryptionKeys: [{ kid: "k", secret }] };

  it("is read unchanged, with and without keys", () => {
    for (const config of [sealed, { encryptionKeys: [] }]) {
      const codec = compactionCodec(config.encryptionKeys, "acme");
      expect(codec.read(codec.write(content), false)).toEqual(content);
    }
  });

  it("is readable for no other tenant, and with keys only in its deployment", () => {
    const mine = compactionCodec(sealed.encryptionKeys, "acme");
    expect(compactionCodec(sealed.encryptionKeys, "other").read(mine.write(content), true)).toHaveProperty("fault");
    const plain = compactionCodec([], "acme").write(content);
    expect(mine.read(plain, false)).toHaveProperty("fault");
    expect(mine.read(plain, true)).toEqual(content);
  });

  it("is refused after any cut or change", () => {
    for (const config of [sealed, { encryptionKeys: [] }]) {
      const codec = compactionCodec(config.encryptionKeys, "acme");
      const text = codec.write(content);
      for (let at = 0; at < text.length; at += 1) expect(codec.read(text.slice(0, at), true)).toHaveProperty("fault");
    }
    const codec = compactionCodec(sealed.encryptionKeys, "acme");
    const text = codec.write(content);
    for (let at = 0; at < text.length; at += 1) {
      const other = text[at] === "A" ? "B" : "A";
      expect(codec.read(text.slice(0, at) + other + text.slice(at + 1), true)).toHaveProperty("fault");
    }
  });
});

describe("a past with a compaction", () => {
  const content: CompactionContent = { before: [said("developer", "Be kind.")], summary: "Said.", after: [] };
  const item: Item = { type: "compaction", id: "cmp_1", encrypted_content: "x" };
  const unfinished: Item = { type: "compaction", id: "cmp_2", encrypted_content: "" };
  const standing = told(standingItems(content, "user"));

  it("begins with it, and with newer instructions of the input", () => {
    const history = [said("user", "One.")];
    const input = [said("developer", "Be kind."), said("developer", "Be quick."), said("user", "Two."), item];
    const opened = { side: "input" as const, index: 3, content };
    const past = standingPast({ history, input: [...input, said("user", "Three.")] }, opened, "user");
    expect(told([...past.history, ...past.input])).toEqual(["Be quick.", ...standing, "Three."]);
  });

  it("in an earlier turn has nothing from before it", () => {
    const history = [said("developer", "Be quick."), item, unfinished, said("user", "Two.")];
    const opened = { side: "history" as const, index: 1, content };
    const past = standingPast({ history, input: [said("user", "Three.")] }, opened, "user");
    expect(told([...past.history, ...past.input])).toEqual([...standing, "Two.", "Three."]);
  });

  it("is complete if the compaction was cut off", () => {
    const past = standingPast({ history: [said("user", "One."), unfinished], input: [] }, undefined, "user");
    expect(told(past.history)).toEqual(["One."]);
  });
});

let simulator: Simulator;
let config: Config;
beforeEach(() => {
  simulator = createSimulator();
  const fetch = (url: string, init: RequestInit) => simulator.fetch(new Request(url, init));
  config = loadConfig({ VLLM: { fetch }, ALLOW_ANONYMOUS: "true" });
});

const { signal } = new AbortController();

describe.each([
  ["chat", "simulator?words=5&reasoning=1"],
  ["harmony", "simulator-gpt-oss?words=5"],
] as const)("a run with a compaction, %s", (engine, name) => {
  const long = said("assistant", "Bonn lies on the Rhine. ".repeat(300), "msg_2");
  const trigger: Item = { type: "compaction_trigger", id: "item_4" };
  const history = [said("user", "Tell me of Bonn.", "msg_1"), long];
  const spec: TurnSpec = {
    ...newTurnAddress(),
    request: createRequest.parse({
      input: [],
      previous_response_id: "resp_1",
      context_management: [{ type: "compaction", compact_threshold: 1_000 }],
      background: true,
    }),
    model: { name, upstream: name, engine },
    tenant: "tenant",
    cacheSalt: "salt",
    affinity: { isRooted: true },
    createdAt: Date.now(),
  };

  /** Runs the turn after the lines of a log; the log grows. */
  async function run(past: Past, lines: string[]): Promise<ResponseObject> {
    const sink = {
      event: (_: string, json: string) => void lines.push(json),
      record: (record: Parameters<typeof recordLine>[0]) => void lines.push(recordLine(record)),
      commit: () => {},
      flush: () => undefined,
    };
    const logged = lines.length > 0 ? readLoggedTurn([...lines]) : undefined;
    const measured = newMeasurements();
    const host = { config, access: {}, outputLength: 1_000_000, signal, waitUntil: () => {}, sink, measured, logged };
    const turn = assembleTurn(spec, past, host);
    if (!logged) turn.queue();
    const { closed } = await turn.resume(async (_, terminate) => terminate());
    return JSON.parse(responseBody(closed)) as ResponseObject;
  }

  const summaries = () =>
    simulator.requests.filter(
      ({ path, body }) => path.endsWith("completions") && JSON.stringify(body).includes("Rhine"),
    );

  function expectOneCompaction(lines: readonly string[], response: ResponseObject): void {
    const events = lines.filter((line) => !isRecord(line)).map((line) => JSON.parse(line) as StreamEvent);
    expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
    for (const type of ["response.output_item.added", "response.output_item.done"] as const) {
      const items = events.flatMap((event) => (event.type === type ? [event.item] : [])) as OutputItem[];
      expect(items.filter((item) => item.type === "compaction")).toHaveLength(1);
    }
    const { output } = response;
    expect(output.filter(({ type }) => type === "compaction")).toEqual([
      expect.objectContaining({ type: "compaction" }),
    ]);
    expect(output[0]).toMatchObject({
      type: "compaction",
      encrypted_content: expect.stringContaining("the quick brown"),
    });
    expect(response.status).toBe("completed");
  }

  it.each([
    ["before its answer", [said("user", "And now?", "msg_3")]],
    ["that was asked for", [trigger]],
  ])("%s makes it once, wherever its process dies", async (_, input) => {
    const past: Past = { history, replays: [], input };
    const lines: string[] = [];
    const whole = await run(past, lines);
    expectOneCompaction(lines, whole);
    const done = lines.findIndex((line) => line.includes('"response.output_item.done"'));
    const end = lines.findIndex((line) => line.includes('"response.completed"'));
    for (let cut = 1; cut <= end; cut += 1) {
      simulator.clear();
      const log = lines.slice(0, cut);
      const response = await run(past, log);
      expectOneCompaction(log, response);
      expect([cut, summaries().length]).toEqual([cut, cut > done ? 0 : 1]);
      expect(response.output.map(({ type }) => type)).toEqual(
        expect.arrayContaining(whole.output.map(({ type }) => type)),
      );
      // Lost output counts, and output that was not repeated does not.
      expect(response.usage?.input_tokens).toBeGreaterThanOrEqual(whole.usage?.input_tokens ?? 0);
    }
  });
});
