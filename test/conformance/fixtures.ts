/** Valid answers, written by hand. The self-tests break one thing at a time. */
import type { EventStream, WireEvent } from "./sse-parser.ts";
import type { JsonObject } from "./violations.ts";

const LOGPROB = { token: "Hi", logprob: -0.5, bytes: [72, 105], top_logprobs: [] };

/** A valid Response body; `changes` replaces keys. */
export function goodResponse(changes: JsonObject = {}): JsonObject {
  return {
    id: "resp_1",
    object: "response",
    created_at: 1_790_000_000,
    completed_at: 1_790_000_001,
    status: "completed",
    incomplete_details: null,
    model: "qwen",
    previous_response_id: null,
    instructions: null,
    output: goodItems(),
    error: null,
    tools: [
      {
        type: "function",
        name: "weather",
        description: null,
        parameters: { type: "object", properties: {} },
        strict: null,
      },
    ],
    tool_choice: "auto",
    truncation: "disabled",
    parallel_tool_calls: true,
    text: { format: { type: "text" } },
    top_p: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    top_logprobs: 0,
    temperature: 1,
    reasoning: { effort: null, summary: null },
    usage: {
      input_tokens: 10,
      input_tokens_details: { cached_tokens: 4, cache_write_tokens: 0 },
      output_tokens: 20,
      output_tokens_details: { reasoning_tokens: 5 },
      total_tokens: 30,
    },
    max_output_tokens: null,
    max_tool_calls: null,
    store: true,
    background: false,
    service_tier: "default",
    metadata: {},
    safety_identifier: null,
    access_programs: null,
    prompt_cache_key: null,
    user: null,
    ...changes,
  };
}

/** Reasoning with a summary, a message with log probabilities and an annotation, and two calls. */
export function goodItems(): JsonObject[] {
  return structuredClone([
    {
      type: "reasoning",
      id: "rs_1",
      status: "completed",
      summary: [{ type: "summary_text", text: "Short." }],
      content: [{ type: "reasoning_text", text: "Let me think." }],
    },
    {
      type: "message",
      id: "msg_1",
      status: "completed",
      role: "assistant",
      content: [{ type: "output_text", text: "Hi there", annotations: [annotation()], logprobs: [LOGPROB, LOGPROB] }],
    },
    call("fc_1", "call_1", '{"city":"Rome"}'),
    call("fc_2", "call_2", '{"city":"Oslo"}'),
  ]);
}

function annotation(): JsonObject {
  return { type: "url_citation", url: "https://example.com", title: "Example", start_index: 0, end_index: 2 };
}

function call(id: string, callId: string, args: string): JsonObject {
  return { type: "function_call", id, call_id: callId, name: "weather", arguments: args, status: "completed" };
}

/** The snapshots before the end of a response. */
export function openResponse(changes: JsonObject = {}): JsonObject {
  return goodResponse({ status: "in_progress", completed_at: null, output: [], usage: null, ...changes });
}

/** A stream that tests can break: events in a list, found by type, numbered at the end. */
export class Draft {
  events: { name: string; data: JsonObject }[] = [];
  done = true;

  /** The valid stream of {@link goodResponse}; two calls are open at once. */
  static good(): Draft {
    const draft = new Draft();
    const [reasoning = {}, message = {}, first = {}, second = {}] = goodItems();
    draft.add("response.created", { response: openResponse() });
    draft.add("response.in_progress", { response: openResponse() });

    const thought = { item_id: "rs_1", output_index: 0, content_index: 0 };
    const summary = { item_id: "rs_1", output_index: 0, summary_index: 0 };
    draft.add("response.output_item.added", {
      output_index: 0,
      item: { type: "reasoning", id: "rs_1", status: "in_progress", summary: [] },
    });
    draft.add("response.content_part.added", { ...thought, part: { type: "reasoning_text", text: "" } });
    draft.addDelta("response.reasoning_text.delta", { ...thought, delta: "Let me " });
    draft.addDelta("response.reasoning_text.delta", { ...thought, delta: "think." });
    draft.add("response.reasoning_text.done", { ...thought, text: "Let me think." });
    draft.add("response.content_part.done", { ...thought, part: { type: "reasoning_text", text: "Let me think." } });
    draft.add("response.reasoning_summary_part.added", { ...summary, part: { type: "summary_text", text: "" } });
    draft.addDelta("response.reasoning_summary_text.delta", { ...summary, delta: "Short." });
    draft.add("response.reasoning_summary_text.done", { ...summary, text: "Short." });
    draft.add("response.reasoning_summary_part.done", { ...summary, part: { type: "summary_text", text: "Short." } });
    draft.add("response.output_item.done", { output_index: 0, item: reasoning });

    // A heartbeat after long silence.
    draft.add("response.in_progress", { response: openResponse() });

    const text = { item_id: "msg_1", output_index: 1, content_index: 0 };
    const part = { type: "output_text", text: "", annotations: [], logprobs: [] };
    draft.add("response.output_item.added", {
      output_index: 1,
      item: { type: "message", id: "msg_1", status: "in_progress", role: "assistant", content: [] },
    });
    draft.add("response.content_part.added", { ...text, part });
    draft.addDelta("response.output_text.delta", { ...text, delta: "Hi", logprobs: [LOGPROB] });
    draft.add("response.output_text.annotation.added", { ...text, annotation_index: 0, annotation: annotation() });
    draft.addDelta("response.output_text.delta", { ...text, delta: " there", logprobs: [LOGPROB] });
    draft.add("response.output_text.done", { ...text, text: "Hi there", logprobs: [LOGPROB, LOGPROB] });
    draft.add("response.content_part.done", {
      ...text,
      part: { ...part, text: "Hi there", annotations: [annotation()], logprobs: [LOGPROB, LOGPROB] },
    });
    draft.add("response.output_item.done", { output_index: 1, item: message });

    const calls = [
      { index: 2, item: first },
      { index: 3, item: second },
    ];
    for (const { index, item } of calls) {
      draft.add("response.output_item.added", {
        output_index: index,
        item: { ...item, arguments: "", status: "in_progress" },
      });
    }
    for (const { index, item } of calls) {
      const own = { item_id: item.id, output_index: index };
      const args = String(item.arguments);
      draft.addDelta("response.function_call_arguments.delta", { ...own, delta: args.slice(0, 5) });
      draft.addDelta("response.function_call_arguments.delta", { ...own, delta: args.slice(5) });
      draft.add("response.function_call_arguments.done", { ...own, arguments: args, name: item.name });
      draft.add("response.output_item.done", { output_index: index, item });
    }
    draft.add("response.completed", { response: goodResponse() });
    return draft.numbered();
  }

  /** A valid stream of tools that the server runs: two lists at a time, then two calls, of which one fails. */
  static serverTools(): Draft {
    const draft = new Draft();
    draft.add("response.created", { response: openResponse() });
    draft.add("response.in_progress", { response: openResponse() });
    const output: JsonObject[] = [
      ...["a", "b"].map((label) => ({ type: "mcp_list_tools", id: `mcpl_${label}`, server_label: label, tools: [] })),
      ...["completed", "failed"].map((status) => ({
        type: "mcp_call",
        id: `mcp_${status}`,
        status,
        server_label: "a",
        name: "run",
        arguments: "{}",
        approval_request_id: null,
        output: status === "completed" ? "done" : null,
        error: status === "completed" ? null : { type: "http_error", code: 500, message: "Broken." },
      })),
    ];
    const own = (index: number) => ({ item_id: output[index]?.id, output_index: index });
    for (const index of [0, 1]) {
      draft.add("response.output_item.added", { output_index: index, item: output[index] });
      draft.add("response.mcp_list_tools.in_progress", own(index));
    }
    for (const index of [1, 0]) {
      draft.add("response.mcp_list_tools.completed", own(index));
      draft.add("response.output_item.done", { output_index: index, item: output[index] });
    }
    for (const index of [2, 3]) {
      const item = { ...output[index], arguments: "", status: "in_progress", output: null, error: null };
      draft.add("response.output_item.added", { output_index: index, item });
      draft.add("response.mcp_call.in_progress", own(index));
      draft.addDelta("response.mcp_call_arguments.delta", { ...own(index), delta: "{}" });
      draft.add("response.mcp_call_arguments.done", { ...own(index), arguments: "{}" });
    }
    for (const index of [3, 2]) {
      draft.add(`response.mcp_call.${output[index]?.status}`, own(index));
      draft.add("response.output_item.done", { output_index: index, item: output[index] });
    }
    draft.add("response.completed", { response: goodResponse({ output }) });
    return draft.numbered();
  }

  /** A valid stream of tools that the client runs: a custom one, and a shell. */
  static clientTools(): Draft {
    const draft = new Draft();
    draft.add("response.created", { response: openResponse() });
    draft.add("response.in_progress", { response: openResponse() });
    const custom = {
      type: "custom_tool_call",
      id: "ctc_1",
      call_id: "c1",
      name: "patch",
      input: "a b",
      status: "completed",
    };
    const action = { commands: ["ls", "pwd"], timeout_ms: null, max_output_length: null };
    const shell = { type: "shell_call", id: "sh_1", call_id: "c2", action, environment: null, status: "completed" };
    const own = { item_id: "ctc_1", output_index: 0 };
    draft.add("response.output_item.added", { output_index: 0, item: { ...custom, input: "", status: "in_progress" } });
    draft.addDelta("response.custom_tool_call_input.delta", { ...own, delta: "a " });
    draft.addDelta("response.custom_tool_call_input.delta", { ...own, delta: "b" });
    draft.add("response.custom_tool_call_input.done", { ...own, input: "a b" });
    draft.add("response.output_item.done", { output_index: 0, item: custom });
    const begun = { ...shell, action: { ...action, commands: [] }, status: "in_progress" };
    draft.add("response.output_item.added", { output_index: 1, item: begun });
    for (const [command_index, command] of action.commands.entries()) {
      const at = { output_index: 1, command_index };
      draft.add("response.shell_call_command.added", { ...at, command: "" });
      draft.add("response.shell_call_command.delta", { ...at, delta: command });
      draft.add("response.shell_call_command.done", { ...at, command });
    }
    draft.add("response.output_item.done", { output_index: 1, item: shell });
    draft.add("response.completed", { response: goodResponse({ output: [custom, shell] }) });
    return draft.numbered();
  }

  /** A valid stream that fails inside its message. */
  static failing(): Draft {
    const draft = Draft.good();
    draft.events.length = draft.position("response.output_text.delta") + 1;
    const error = { type: "server_error", code: "server_error", message: "The model went away.", param: null };
    draft.add("error", { error, code: error.code, message: error.message, param: error.param });
    draft.add("response.failed", {
      response: openResponse({
        status: "failed",
        error: { code: "server_error", message: error.message },
        output: goodItems().slice(0, 1),
      }),
    });
    return draft.numbered();
  }

  /** A valid stream whose message is cut off by `max_output_tokens`. */
  static incomplete(): Draft {
    const draft = Draft.good();
    draft.events.length = draft.position("response.output_item.added", 2);
    const done = draft.data("response.output_item.done", 1);
    done.item = { ...objectAt(done, "item"), status: "incomplete" };
    draft.add("response.incomplete", {
      response: goodResponse({
        status: "incomplete",
        completed_at: null,
        incomplete_details: { reason: "max_output_tokens" },
        output: [goodItems()[0], done.item],
      }),
    });
    return draft.numbered();
  }

  add(type: string, fields: JsonObject): void {
    this.events.push({ name: type, data: structuredClone({ type, sequence_number: 0, ...fields }) });
  }

  addDelta(type: string, fields: JsonObject): void {
    this.add(type, { ...fields, obfuscation: "x7Qb" });
  }

  /** The position of the nth event of a type. */
  position(type: string, nth = 0): number {
    const position = this.events.flatMap(({ data }, index) => (data.type === type ? [index] : []))[nth];
    if (position === undefined) throw new Error(`the draft has no ${type} ${nth}`);
    return position;
  }

  /** The data of the nth event of a type, to be changed. */
  data(type: string, nth = 0): JsonObject {
    return this.events[this.position(type, nth)]?.data ?? {};
  }

  remove(type: string, nth = 0): void {
    this.events.splice(this.position(type, nth), 1);
    this.numbered();
  }

  /** Sends the nth event of a type once more, at `position` (right behind itself unless told). */
  repeat(type: string, nth = 0, position = this.position(type, nth) + 1): void {
    this.events.splice(position, 0, { name: type, data: structuredClone(this.data(type, nth)) });
    this.numbered();
  }

  /** Moves the nth event of a type to the place that `position` has now. */
  move(type: string, nth: number, position: number): void {
    const [event] = this.events.splice(this.position(type, nth), 1);
    if (event !== undefined) this.events.splice(position, 0, event);
    this.numbered();
  }

  numbered(): this {
    for (const [index, { data }] of this.events.entries()) data.sequence_number = index;
    return this;
  }

  stream(): EventStream {
    const events: WireEvent[] = this.events;
    return { events, comments: [], done: this.done };
  }

  /** The stream as bytes, with a heartbeat comment in front. */
  text(): string {
    const frames = this.events.map(({ name, data }) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
    return `: ok\n\n${frames.join("")}${this.done ? "data: [DONE]\n\n" : ""}`;
  }
}

/** The object under a key; throws when there is none, so that a mutation cannot miss its target. */
export function objectAt(value: unknown, ...path: (string | number)[]): JsonObject {
  let node: unknown = value;
  for (const key of path) node = (node as Record<string | number, unknown>)[key];
  if (typeof node !== "object" || node === null) throw new Error(`no object at ${path.join(".")}`);
  return node as JsonObject;
}
