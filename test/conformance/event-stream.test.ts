import { describe, expect, test } from "vitest";
import { checkEventStream, checkWithOpenAiNode, parseEventStream, type StreamOptions } from "./event-stream.ts";
import { Draft, goodItems, goodResponse, objectAt, openResponse } from "./fixtures.ts";
import { knownEventTypes } from "./schemas.ts";
import { STREAM_RULES } from "./stream-rules.ts";
import { ruleLabel, violationsIn } from "./violations.ts";

const DELTA = "response.output_text.delta";
const ADDED = "response.output_item.added";
const DONE = "response.output_item.done";
const ARGS_DELTA = "response.function_call_arguments.delta";
const ARGS_DONE = "response.function_call_arguments.done";

interface Mutation {
  readonly rule: string;
  readonly what: string;
  readonly mutate?: (draft: Draft) => void;
  readonly options?: StreamOptions;
  readonly from?: () => Draft;
}

/** Each breaks one rule of a valid stream. */
const MUTATIONS: readonly Mutation[] = [
  { rule: "#4 schema", what: "a missing key", mutate: (d) => delete d.data(DELTA).content_index },
  {
    rule: "#4 schema",
    what: "an unknown key",
    mutate: (d) => {
      d.data(DELTA).vendor = 1;
    },
  },
  { rule: "#4 schema", what: "a keepalive event", mutate: (d) => d.add("keepalive", {}) },
  {
    rule: "#4 schema",
    what: "vLLM's own reasoning part event",
    mutate: (d) => {
      d.data("response.content_part.added").type = "response.reasoning_part.added";
    },
  },
  { rule: "#4 schema", what: "no logprobs on a delta", mutate: (d) => delete d.data(DELTA).logprobs },

  { rule: "#1 createdFirst", what: "no created", mutate: (d) => d.remove("response.created") },
  { rule: "#1 createdFirst", what: "created twice", mutate: (d) => d.repeat("response.created") },
  {
    rule: "#1 createdFirst",
    what: "created with number 1",
    mutate: (d) => {
      d.data("response.created").sequence_number = 1;
    },
  },
  {
    rule: "#1 createdFirst",
    what: "no events",
    mutate: (d) => {
      d.events = [];
    },
  },
  {
    rule: "#2 inProgressNext",
    what: "no in_progress at the start",
    mutate: (d) => d.remove("response.in_progress"),
  },
  { rule: "#2 inProgressNext", what: "background without queued", options: { background: true } },
  {
    rule: "#2 inProgressNext",
    what: "queued in the foreground",
    mutate: insertQueued,
    options: { background: false },
  },
  {
    rule: "#2 inProgressNext",
    what: "queued late",
    mutate: (d) => {
      insertQueued(d);
      d.move("response.queued", 0, 4);
    },
  },
  {
    rule: "#3 sequenceCounts",
    what: "a gap",
    mutate: (d) => {
      d.data(DONE).sequence_number = 99;
    },
  },
  { rule: "#3 sequenceCounts", what: "a replay from elsewhere", options: { startingAfter: 3 } },
  {
    rule: "#4 nameIsType",
    what: "another SSE name",
    mutate: (d) => void Object.assign(d.events[3] ?? {}, { name: "x" }),
  },
  {
    rule: "#5 oneTerminalEventLast",
    what: "no terminal event",
    mutate: (d) => d.remove("response.completed"),
  },
  { rule: "#5 oneTerminalEventLast", what: "two terminal events", mutate: (d) => d.repeat("response.completed") },
  {
    rule: "#5 oneTerminalEventLast",
    what: "an event after the terminal one",
    mutate: (d) => d.repeat("response.in_progress", 1, d.events.length),
  },
  {
    rule: "#6 doneSentinelSent",
    what: "no [DONE]",
    mutate: (d) => {
      d.done = false;
    },
  },
  { rule: "#8 itemEventsInsideBracket", what: "an item never added", mutate: (d) => d.remove(ADDED, 1) },
  {
    rule: "#8 itemEventsInsideBracket",
    what: "a delta before its item",
    mutate: (d) => d.move(DELTA, 0, d.position(ADDED, 1)),
  },
  {
    rule: "#8 itemEventsInsideBracket",
    what: "a delta after its item",
    mutate: (d) => d.move(DELTA, 1, d.position(DONE, 1)),
  },
  { rule: "#8 itemEventsInsideBracket", what: "an item done twice", mutate: (d) => d.repeat(DONE, 1) },
  { rule: "#8 everyItemDoneOnce", what: "an item never done", mutate: (d) => d.remove(DONE, 1) },
  {
    rule: "#8 everyItemDoneOnce",
    what: "an item never done in an incomplete response",
    from: Draft.incomplete,
    mutate: (d) => d.remove(DONE, 1),
  },
  {
    rule: "#8 everyItemDoneOnce",
    what: "an item done while in progress",
    mutate: (d) => {
      objectAt(d.data(DONE, 1), "item").status = "in_progress";
    },
  },
  {
    rule: "#8 onlyCallsOverlap",
    what: "a message inside reasoning",
    mutate: (d) => d.move(DONE, 0, d.position(DONE, 1)),
  },
  {
    rule: "#8 onlyCallsOverlap",
    what: "a call inside a message",
    mutate: (d) => d.move(DONE, 1, d.position(ADDED, 2)),
  },
  {
    rule: "#8 onlyCallsOverlap",
    what: "a server's list that is added before the other one has begun",
    from: Draft.serverTools,
    mutate: (d) => d.move("response.mcp_list_tools.in_progress", 0, d.position(ADDED, 1)),
  },
  {
    rule: "#8 serverWorkInOrder",
    what: "a call that is run before it is written",
    from: Draft.serverTools,
    mutate: (d) => d.remove("response.mcp_call_arguments.done"),
  },
  {
    rule: "#8 serverWorkInOrder",
    what: "a call without an outcome",
    from: Draft.serverTools,
    mutate: (d) => d.remove("response.mcp_call.completed"),
  },
  {
    rule: "#8 serverWorkInOrder",
    what: "a call with another outcome than its status",
    from: Draft.serverTools,
    mutate: (d) => {
      objectAt(d.data(DONE, 2), "item").status = "completed";
    },
  },
  {
    rule: "#8 serverWorkInOrder",
    what: "a call that goes on after its outcome",
    from: Draft.serverTools,
    mutate: (d) => d.move("response.mcp_call_arguments.done", 0, d.position("response.mcp_call.completed")),
  },
  {
    rule: "#8 serverWorkInOrder",
    what: "a list in progress twice",
    from: Draft.serverTools,
    mutate: (d) => d.repeat("response.mcp_list_tools.in_progress"),
  },
  {
    rule: "#9 outputIndexesCountUp",
    what: "indexes out of order",
    mutate: (d) => d.move(ADDED, 3, d.position(ADDED, 2)),
  },
  {
    rule: "#9 outputIndexesCountUp",
    what: "an index left out",
    mutate: (d) => {
      for (const { data } of d.events) if (data.output_index === 3) data.output_index = 4;
    },
  },
  { rule: "#9 outputIndexesCountUp", what: "an item added twice", mutate: (d) => d.repeat(ADDED, 1) },
  {
    rule: "#10 itemIdsStable",
    what: "a delta with another id",
    mutate: (d) => {
      d.data(DELTA).item_id = "msg_2";
    },
  },
  {
    rule: "#10 itemIdsStable",
    what: "an item done with another id",
    mutate: (d) => {
      objectAt(d.data(DONE, 1), "item").id = "msg_2";
    },
  },
  {
    rule: "#10 itemIdsStable",
    what: "an item done as another type",
    mutate: (d) => {
      d.data(DONE, 1).item = goodItems()[0];
    },
  },
  {
    rule: "#10 itemIdsStable",
    what: "two items with one id",
    mutate: (d) => {
      objectAt(d.data(ADDED, 3), "item").id = "fc_1";
    },
  },
  {
    rule: "#10 itemIdsStable",
    what: "an item without id",
    mutate: (d) => delete objectAt(d.data(ADDED, 3), "item").id,
  },
  {
    rule: "#10 finalOutputIsDoneItems",
    what: "another text in the final output",
    mutate: (d) => {
      objectAt(d.data("response.completed"), "response", "output", 1, "content", 0).text = "Hi where";
    },
  },
  {
    rule: "#10 finalOutputIsDoneItems",
    what: "an item missing in the final output",
    mutate: (d) => {
      objectAt(d.data("response.completed"), "response").output = goodItems().slice(0, 3);
    },
  },
  {
    rule: "#10 finalOutputIsDoneItems",
    what: "a failed response with an unknown item",
    from: Draft.failing,
    mutate: (d) => {
      objectAt(d.data("response.failed"), "response").output = goodItems().slice(3);
    },
  },
  {
    rule: "#11 partsBracketed",
    what: "text without its part",
    mutate: (d) => d.remove("response.content_part.added", 1),
  },
  {
    rule: "#11 partsBracketed",
    what: "a part never done",
    mutate: (d) => d.remove("response.content_part.done", 1),
  },
  {
    rule: "#11 partsBracketed",
    what: "a part done before its text",
    mutate: (d) => d.move("response.content_part.done", 1, d.position("response.output_text.done")),
  },
  { rule: "#11 partsBracketed", what: "text never done", mutate: (d) => d.remove("response.output_text.done") },
  {
    rule: "#11 partsBracketed",
    what: "text after its done",
    mutate: (d) => d.move(DELTA, 1, d.position("response.output_text.done")),
  },
  {
    rule: "#11 partsBracketed",
    what: "a wrong content_index",
    mutate: (d) => {
      d.data("response.content_part.added", 1).content_index = 1;
    },
  },
  {
    rule: "#11 partsBracketed",
    what: "a refusal delta in a text part",
    mutate: (d) => {
      const { item_id, output_index, content_index } = d.data(DELTA);
      d.add("response.refusal.delta", { item_id, output_index, content_index, delta: "" });
      d.move("response.refusal.delta", 0, d.position(DELTA));
    },
  },
  {
    rule: "#11 partsBracketed",
    what: "a part inside another",
    mutate: (d) => d.move("response.content_part.done", 0, d.position("response.reasoning_summary_part.done")),
    // The two channels are apart; a second content part is not.
    from: withSecondPart,
  },
  {
    rule: "#11 partsBracketed",
    what: "a summary without its part",
    mutate: (d) => d.remove("response.reasoning_summary_part.added"),
  },
  {
    rule: "#11 partsBracketed",
    what: "a wrong annotation_index",
    mutate: (d) => {
      d.data("response.output_text.annotation.added").annotation_index = 1;
    },
  },
  { rule: "#12 deltasAddUpToText", what: "a lost delta", mutate: (d) => d.remove(DELTA, 1) },
  { rule: "#12 deltasAddUpToText", what: "a delta twice", mutate: (d) => d.repeat(DELTA, 1) },
  {
    rule: "#12 deltasAddUpToText",
    what: "another reasoning text",
    mutate: (d) => {
      d.data("response.reasoning_text.done").text = "Let me see.";
    },
  },
  {
    rule: "#12 deltasAddUpToText",
    what: "another text in the done part",
    mutate: (d) => {
      objectAt(d.data("response.content_part.done", 1), "part").text = "Hi";
    },
  },
  {
    rule: "#12 deltasAddUpToText",
    what: "another summary in the item",
    mutate: (d) => {
      objectAt(d.data(DONE, 0), "item", "summary", 0).text = "Long.";
    },
  },
  {
    rule: "#12 deltasAddUpToText",
    what: "another text in the done item",
    mutate: (d) => {
      objectAt(d.data(DONE, 1), "item", "content", 0).text = "Hi";
    },
  },
  {
    rule: "#12 deltasAddUpToText",
    what: "lost logprobs",
    mutate: (d) => {
      d.data(DELTA).logprobs = [];
    },
  },
  {
    rule: "#12 deltasAddUpToText",
    what: "a lost annotation",
    mutate: (d) => d.remove("response.output_text.annotation.added"),
  },
  { rule: "#13 argumentDeltasAddUp", what: "a lost delta", mutate: (d) => d.remove(ARGS_DELTA, 1) },
  { rule: "#13 argumentDeltasAddUp", what: "no arguments.done", mutate: (d) => d.remove(ARGS_DONE) },
  { rule: "#13 argumentDeltasAddUp", what: "arguments.done twice", mutate: (d) => d.repeat(ARGS_DONE) },
  {
    rule: "#13 argumentDeltasAddUp",
    what: "a delta after arguments.done",
    mutate: (d) => d.move(ARGS_DELTA, 1, d.position(ARGS_DONE)),
  },
  { rule: "#13 argumentDeltasAddUp", what: "no name", mutate: (d) => delete d.data(ARGS_DONE).name },
  {
    rule: "#13 argumentDeltasAddUp",
    what: "arguments that are not JSON",
    mutate: (d) => {
      for (const { data } of d.events) if (data.output_index === 3 && data.delta === '{"cit') data.delta = "";
      d.data(ARGS_DONE, 1).arguments = 'y":"Oslo"}';
      objectAt(d.data(DONE, 3), "item").arguments = 'y":"Oslo"}';
    },
  },
  {
    rule: "#13 argumentDeltasAddUp",
    what: "a lost delta of a custom tool's input",
    from: Draft.clientTools,
    mutate: (d) => d.remove("response.custom_tool_call_input.delta", 1),
  },
  {
    rule: "#13 commandsAddUp",
    what: "a command that is never told",
    from: Draft.clientTools,
    mutate: (d) => {
      objectAt(d.data(DONE, 1), "item", "action").commands = ["ls"];
    },
  },
  {
    rule: "#13 commandsAddUp",
    what: "a lost delta of a command",
    from: Draft.clientTools,
    mutate: (d) => d.remove("response.shell_call_command.delta", 1),
  },
  {
    rule: "#14 itemsBeginEmpty",
    what: "an item added completed",
    mutate: (d) => {
      objectAt(d.data(ADDED, 1), "item").status = "completed";
    },
  },
  {
    rule: "#14 itemsBeginEmpty",
    what: "a call added with arguments",
    mutate: (d) => {
      objectAt(d.data(ADDED, 2), "item").arguments = "{";
    },
  },
  {
    rule: "#14 itemsBeginEmpty",
    what: "a message added with content",
    mutate: (d) => {
      objectAt(d.data(ADDED, 1), "item").content = goodItems()[1]?.content;
    },
  },
  {
    rule: "#14 itemsBeginEmpty",
    what: "reasoning added with a summary",
    mutate: (d) => {
      objectAt(d.data(ADDED, 0), "item").summary = goodItems()[0]?.summary;
    },
  },
  {
    rule: "#14 itemsBeginEmpty",
    what: "a part added with text",
    mutate: (d) => {
      objectAt(d.data("response.content_part.added", 1), "part").text = "Hi";
    },
  },
  {
    rule: "#15 callIdsStable",
    what: "a call done with another call_id",
    mutate: (d) => {
      objectAt(d.data(DONE, 2), "item").call_id = "call_9";
    },
  },
  {
    rule: "#15 callIdsStable",
    what: "a call done with another name",
    mutate: (d) => {
      objectAt(d.data(DONE, 2), "item").name = "time";
    },
  },
  {
    rule: "#15 callIdsStable",
    what: "two calls with one call_id",
    mutate: (d) => {
      objectAt(d.data(ADDED, 3), "item").call_id = "call_1";
    },
  },
  {
    rule: "#15 callIdsStable",
    what: "an empty call_id",
    mutate: (d) => {
      objectAt(d.data(ADDED, 3), "item").call_id = "";
    },
  },
  {
    rule: "#16 eventsFitTheirItem",
    what: "arguments in a message",
    mutate: (d) => {
      d.data(ARGS_DELTA).output_index = 1;
    },
  },
  {
    rule: "#16 eventsFitTheirItem",
    what: "an output_text part in reasoning",
    mutate: (d) => {
      d.data("response.content_part.added").part = { type: "output_text", text: "", annotations: [] };
    },
  },
  {
    rule: "#17 snapshotsAreFull",
    what: "created without the penalties",
    mutate: (d) => delete objectAt(d.data("response.created"), "response").presence_penalty,
  },
  {
    rule: "#17 snapshotsAreOneResponse",
    what: "another id at the end",
    mutate: (d) => {
      objectAt(d.data("response.completed"), "response").id = "resp_2";
    },
  },
  {
    rule: "#17 snapshotsAreOneResponse",
    what: "another temperature in a heartbeat",
    mutate: (d) => {
      objectAt(d.data("response.in_progress", 1), "response").temperature = 0;
    },
  },
  {
    rule: "#17 snapshotsEmptyUntilTerminal",
    what: "output in a heartbeat",
    mutate: (d) => {
      objectAt(d.data("response.in_progress", 1), "response").output = goodItems().slice(0, 1);
    },
  },
  {
    rule: "#17 snapshotsEmptyUntilTerminal",
    what: "usage in created",
    mutate: (d) => {
      objectAt(d.data("response.created"), "response").usage = goodResponse().usage;
    },
  },
  {
    rule: "#17 statusFitsEvent",
    what: "in_progress while queued",
    mutate: (d) => {
      objectAt(d.data("response.in_progress"), "response").status = "queued";
    },
  },
  {
    rule: "#17 statusFitsEvent",
    what: "cancelled though nobody cancelled",
    mutate: (d) =>
      void Object.assign(objectAt(d.data("response.completed"), "response"), {
        status: "cancelled",
        completed_at: null,
      }),
  },
  { rule: "#19 logprobsOnlyWhenAsked", what: "logprobs not asked for", options: { logprobs: false } },
  {
    rule: "#19 logprobsOnlyWhenAsked",
    what: "logprobs missing",
    mutate: (d) => {
      d.data(DELTA, 0).logprobs = [];
      d.data(DELTA, 1).logprobs = [];
      d.data("response.output_text.done").logprobs = [];
    },
    options: { logprobs: true },
  },
  {
    rule: "#19 logprobsOnlyWhenAsked",
    what: "a delta's logprob without bytes",
    mutate: (d) => delete objectAt(d.data(DELTA), "logprobs", 0).bytes,
  },
  {
    rule: "#19 logprobsOnlyWhenAsked",
    what: "a delta's logprob without top_logprobs",
    mutate: (d) => delete objectAt(d.data(DELTA), "logprobs", 0).top_logprobs,
  },
  { rule: "#20 obfuscationOnlyOnDeltas", what: "obfuscation while off", options: { obfuscation: false } },
  {
    rule: "#20 obfuscationOnlyOnDeltas",
    what: "a delta without obfuscation while on",
    mutate: (d) => delete d.data(DELTA).obfuscation,
    options: { obfuscation: true },
  },
  {
    rule: "#20 obfuscationOnlyOnDeltas",
    what: "obfuscation on a done event",
    mutate: (d) => {
      d.data(DONE).obfuscation = "abc";
    },
  },
  {
    rule: "#20 obfuscationOnlyOnDeltas",
    what: "obfuscation that is no string",
    mutate: (d) => {
      d.data(DELTA).obfuscation = 7;
    },
  },
  {
    rule: "#24 errorPrecedesFailed",
    what: "failed without an error event",
    from: Draft.failing,
    mutate: (d) => d.remove("error"),
  },
  {
    rule: "#24 errorPrecedesFailed",
    what: "an error event early",
    from: Draft.failing,
    mutate: (d) => d.move("error", 0, 3),
  },
  {
    rule: "#24 errorPrecedesFailed",
    what: "a flat error",
    from: Draft.failing,
    mutate: (d) => delete d.data("error").error,
  },
  {
    rule: "#24 errorPrecedesFailed",
    what: "a nested error without type",
    from: Draft.failing,
    mutate: (d) => delete objectAt(d.data("error"), "error").type,
  },
  {
    rule: "#24 errorPrecedesFailed",
    what: "two codes",
    from: Draft.failing,
    mutate: (d) => {
      d.data("error").code = "rate_limit_exceeded";
    },
  },
  {
    rule: "#24 errorPrecedesFailed",
    what: "another message in response.failed",
    from: Draft.failing,
    mutate: (d) => {
      objectAt(d.data("response.failed"), "response", "error").message = "Oops";
    },
  },
  {
    rule: "#24 errorPrecedesFailed",
    what: "an error in a stream that completes",
    mutate: (d) => {
      d.events.push(...Draft.failing().events.filter(({ name }) => name === "error"));
      d.move("error", 0, d.position("response.completed"));
    },
  },
];

describe("checkEventStream", () => {
  test("accepts a stream with reasoning, a message, two open calls, a heartbeat and obfuscation", () => {
    const { response, items } = checkEventStream(Draft.good().stream(), { logprobs: true, obfuscation: true });
    expect(response).toEqual(goodResponse());
    expect(items).toEqual(goodItems());
  });

  test("accepts overlapping lists and calls of the server", () => {
    checkEventStream(Draft.serverTools().stream());
  });

  test("accepts calls of tools that the client runs", () => {
    checkEventStream(Draft.clientTools().stream());
  });

  test("accepts a stream without obfuscation when it is off", () => {
    const draft = Draft.good();
    for (const { data } of draft.events) delete data.obfuscation;
    checkEventStream(draft.stream(), { obfuscation: false });
  });

  test("accepts a queued background stream", () => {
    const draft = Draft.good();
    insertQueued(draft);
    checkEventStream(draft.stream(), { background: true });
  });

  test("accepts a failed stream with open items, and an incomplete one", () => {
    expect(checkEventStream(Draft.failing().stream()).response?.status).toBe("failed");
    expect(checkEventStream(Draft.incomplete().stream()).response?.status).toBe("incomplete");
  });

  test("accepts a cancelled stream, with or without a last snapshot", () => {
    const draft = Draft.good();
    draft.events.length = draft.position(DELTA) + 1;
    checkEventStream(draft.stream(), { cancelled: true });
    draft.add("response.incomplete", { response: openResponse({ status: "cancelled" }) });
    checkEventStream(draft.numbered().stream(), { cancelled: true });
  });

  test("accepts a stream cut off anywhere, when told so", () => {
    for (const draft of [Draft.good(), Draft.failing(), Draft.incomplete()]) {
      for (let length = 0; length <= draft.events.length; length++) {
        const stream = draft.stream();
        checkEventStream({ ...stream, done: false, events: stream.events.slice(0, length) }, { partial: true });
      }
    }
  });

  test("accepts a replay from anywhere, when told so", () => {
    for (const draft of [Draft.good(), Draft.failing()]) {
      for (let first = 1; first < draft.events.length; first++) {
        const stream = draft.stream();
        checkEventStream({ ...stream, events: stream.events.slice(first) }, { startingAfter: first - 1 });
      }
    }
  });

  test.each(MUTATIONS)("$rule: $what", ({ mutate, options, from, rule }) => {
    const draft = (from ?? Draft.good)();
    mutate?.(draft);
    expect(labels(() => checkEventStream(draft.stream(), options))).toContain(rule);
  });

  test("every rule is broken by some mutation", () => {
    const broken = new Set(MUTATIONS.map(({ rule }) => rule));
    expect(STREAM_RULES.map(ruleLabel).filter((label) => !broken.has(label))).toEqual([]);
  });

  test("knows the 59 events of openai 7.59", () => {
    expect(knownEventTypes()).toHaveLength(59);
  });
});

describe("parseEventStream", () => {
  test("reads events, comments and the sentinel", () => {
    const draft = Draft.good();
    const parsed = parseEventStream(new TextEncoder().encode(draft.text()));
    expect(parsed).toEqual({ ...draft.stream(), comments: ["ok"] });
  });

  test.each([
    ["a torn frame", "event: a\ndata: {}\n"],
    ["a frame without event", "data: {}\n\n"],
    ["a frame without data", "event: a\n\n"],
    ["an id", "event: a\nid: 1\ndata: {}\n\n"],
    ["data in two lines", "event: a\ndata: {\ndata: }\n\n"],
    ["data that is not JSON", "event: a\ndata: {\n\n"],
    ["data that is no object", "event: a\ndata: []\n\n"],
    ["CRLF", "event: a\r\ndata: {}\r\n\r\n"],
    ["a byte order mark", "\uFEFFevent: a\ndata: {}\n\n"],
    ["a frame after [DONE]", "data: [DONE]\n\nevent: a\ndata: {}\n\n"],
    ["a comment after [DONE]", "data: [DONE]\n\n: late\n\n"],
    ["a named [DONE]", "event: done\ndata: [DONE]\n\n"],
  ])("refuses %s", (_what, text) => {
    expect(labels(() => parseEventStream(text))).toContain("#4 framing");
  });

  test("refuses bytes that are not UTF-8", () => {
    const bytes = new Uint8Array([...new TextEncoder().encode('event: a\ndata: {"a":"'), 0xff, 0x22, 0x7d, 10, 10]);
    expect(labels(() => parseEventStream(bytes))).toContain("#4 framing");
  });

  test("accepts a torn end if the stream was cut off, even within a character", () => {
    const bytes = new TextEncoder().encode('event: a\ndata: {}\n\nevent: b\ndata: {"x":"é');
    expect(parseEventStream(bytes.slice(0, -1), { partial: true }).events).toEqual([{ name: "a", data: {} }]);
  });

  test.each([
    ["a frame", "event: a"],
    ["a character", "é"],
  ])("refuses the beginning of %s after [DONE]", (_what, beginning) => {
    const bytes = new TextEncoder().encode(`data: [DONE]\n\n${beginning}`);
    expect(labels(() => parseEventStream(bytes.slice(0, -1), { partial: true }))).toContain("#4 framing");
  });
});

describe("checkWithOpenAiNode", () => {
  test("reads a good stream to its final response", async () => {
    expect(await checkWithOpenAiNode(Draft.good().text())).toMatchObject({ id: "resp_1", status: "completed" });
    expect(await checkWithOpenAiNode(Draft.incomplete().text())).toMatchObject({ status: "incomplete" });
  });

  test("requires that openai-node throws for a failed stream", async () => {
    expect(await checkWithOpenAiNode(Draft.failing().text(), true)).toBeUndefined();
  });

  test.each<[string, (draft: Draft) => void]>([
    ["no created event", (d) => d.remove("response.created")],
    ["text without its part", (d) => d.remove("response.content_part.added", 1)],
    [
      "another response id",
      (d) => {
        objectAt(d.data("response.completed"), "response").id = "resp_2";
      },
    ],
    [
      "another item id",
      (d) => {
        d.data(DELTA).item_id = "msg_2";
      },
    ],
  ])("refuses %s", async (_what, mutate) => {
    const draft = Draft.good();
    mutate(draft);
    await expect(checkWithOpenAiNode(draft.text())).rejects.toThrow("openai-node");
  });
});

/** The labels of the violations that an action throws. */
function labels(action: () => unknown): string[] {
  try {
    action();
  } catch (error) {
    return violationsIn(error).map((line) => line.split(":")[0] ?? "");
  }
  return [];
}

function insertQueued(draft: Draft): void {
  draft.add("response.queued", { response: openResponse({ status: "queued" }) });
  draft.move("response.queued", 0, 1);
}

/** A valid beginning whose reasoning gets a second content part. */
function withSecondPart(): Draft {
  const draft = Draft.good();
  const added = structuredClone(draft.data("response.content_part.added"));
  added.content_index = 1;
  draft.events.splice(draft.position("response.reasoning_summary_part.added"), 0, {
    name: "response.content_part.added",
    data: added,
  });
  return draft.numbered();
}
