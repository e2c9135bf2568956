import { unwrapScript } from "../contract/script.ts";
import type { PendingCall, ServerTool, ToolOutcome } from "../contract/server-tool.ts";
import { parseArguments } from "../protocol/json.ts";
import type { OutputItem, ResponseObject, ServerCall } from "../protocol/response.ts";
import { deltaHead, type EventWriter } from "./output-events.ts";

/**
 * Items and events of calls that this server answers itself, in OpenAI's order: added → in progress → what the model
 * writes → (it is run) → completed or failed → done. What a call is cannot always be told before it is complete: a search
 * has its query in its arguments, and a call that needs approval is no call yet. Such items are added late, and whole.
 */

interface OpenServerCall {
  tool: ServerTool;
  name: string;
  /** What the model has written of it. */
  text: string;
  /** Absent as long as nothing can be shown. */
  item?: ServerCall;
  outputIndex: number;
  deltaHead: string;
}

interface StartedCall extends PendingCall {
  outputIndex: number;
}

/** What of the items is shown (`include`). */
export interface ShownDetails {
  sources: boolean;
  outputs: boolean;
}

export class ServerCalls {
  readonly #writer: EventWriter;
  readonly #response: ResponseObject;
  readonly #shown: ShownDetails;
  /** The container in which code runs, as `container_id`. */
  readonly #container: string;
  readonly #open = new Map<number, OpenServerCall>();
  #pending: StartedCall[] = [];

  constructor(writer: EventWriter, response: ResponseObject, shown: ShownDetails, container: string) {
    this.#writer = writer;
    this.#response = response;
    this.#shown = shown;
    this.#container = container;
  }

  /** Calls that are complete and not answered yet. */
  get pending(): PendingCall[] {
    return this.#pending.map(({ outputIndex: _, ...call }) => call);
  }

  has(index: number): boolean {
    return this.#open.has(index);
  }

  /** A call begins, or goes on (`text` is all of it so far) after a crash in whose log its item may be. */
  begin(index: number, name: string, tool: ServerTool, text = ""): void {
    const call: OpenServerCall = { tool, name, text: "", outputIndex: -1, deltaHead: "" };
    this.#open.set(index, call);
    if (tool.kind === "container" || (tool.kind === "mcp" && !tool.approval)) {
      this.#show(call, {
        id: this.#writer.newItemId("mcp_call"),
        type: "mcp_call",
        status: "in_progress",
        ...(tool.kind === "mcp"
          ? { server_label: tool.label, name: tool.name }
          : { server_label: "container", name: "exec" }),
        arguments: "",
        approval_request_id: null,
        output: null,
        error: null,
      });
    }
    this.append(index, text);
  }

  append(index: number, text: string): void {
    const call = this.#open.get(index);
    if (!call || text === "") return;
    call.text += text;
    const { item } = call;
    if (item?.type === "mcp_call") {
      item.arguments += text;
      this.#writer.delta(ARGUMENTS_DELTA, call.deltaHead, text);
    } else if (item?.type === "code_interpreter_call") {
      item.code = (item.code ?? "") + text;
      this.#writer.delta(CODE_DELTA, call.deltaHead, text);
      // A script is shown as it is written; one in JSON or between fences when it can be taken out of them.
    } else if (call.tool.kind === "python" && /^\s*[^\s{`]/.test(call.text)) this.#showCode(call, call.text);
  }

  /** An item of before a crash: the model has not finished it, or it has not been answered. */
  restore(item: ServerCall, outputIndex: number, pending: PendingCall | undefined, tool: ServerTool | undefined): void {
    if (pending) this.#pending.push({ ...pending, outputIndex });
    else if (tool) {
      const text = item.type === "mcp_call" ? item.arguments : item.type === "code_interpreter_call" ? item.code : "";
      const call = { tool, name: "", text: text ?? "", item, outputIndex, deltaHead: headOf(item, outputIndex) };
      this.#open.set(-1 - outputIndex, call);
    }
  }

  /** The call that was open when the turn was cut off goes on under this index. False where there was none to be seen. */
  resume(index: number, name: string, tool: ServerTool): boolean {
    if (this.#open.has(index)) return true;
    const [found] = this.#open;
    if (!found || found[0] >= 0) return false;
    this.#open.delete(found[0]);
    this.#open.set(index, { ...found[1], name, tool });
    return true;
  }

  /** Completes the calls whose arguments are complete, because something else begins. */
  completeReady(isComplete: (text: string) => boolean): void {
    for (const [index, { text }] of this.#open) if (isComplete(text)) this.#complete(index);
  }

  /** The model has finished its calls. */
  completeAll(): void {
    for (const index of [...this.#open.keys()]) this.#complete(index);
  }

  #complete(index: number): void {
    const call = this.#open.get(index);
    if (!call) return;
    this.#open.delete(index);
    const { tool, name } = call;
    if (tool.kind === "mcp" && tool.approval) {
      this.#requestApproval(tool, call.text);
      return;
    }
    if (call.text === "" && call.item?.type === "mcp_call") {
      call.text = "{}";
      call.item.arguments = call.text;
      this.#writer.delta(ARGUMENTS_DELTA, call.deltaHead, call.text);
    }
    if (tool.kind === "python" && !call.item) this.#showCode(call, unwrapScript(call.text));
    if (tool.kind === "browser") {
      const id = this.#writer.newItemId("web_search_call");
      const action = plannedAction(tool.action, call.text);
      this.#show(call, { id, type: "web_search_call", status: "in_progress", action });
    }
    const { item, outputIndex } = call;
    if (!item) return;
    const at = { item_id: item.id, output_index: outputIndex };
    if (item.type === "mcp_call") {
      this.#writer.emit({ type: "response.mcp_call_arguments.done", ...at, arguments: item.arguments });
    } else if (item.type === "code_interpreter_call") {
      this.#writer.emit({ type: "response.code_interpreter_call_code.done", ...at, code: item.code ?? "" });
    }
    const called: PendingCall = { item: item.id, tool, name, arguments: call.text };
    this.#writer.record({ called });
    this.#pending.push({ ...called, outputIndex });
  }

  #requestApproval(tool: Extract<ServerTool, { kind: "mcp" }>, text: string): void {
    const item: OutputItem = {
      id: this.#writer.newItemId("mcp_approval_request"),
      type: "mcp_approval_request",
      server_label: tool.label,
      name: tool.name,
      arguments: text === "" ? "{}" : text,
    };
    const outputIndex = this.#writer.addItem(item);
    this.#writer.emit({ type: "response.output_item.done", output_index: outputIndex, item });
  }

  /** A call that has been approved: its item comes whole, with the request that it answers. */
  addApproved(tool: Extract<ServerTool, { kind: "mcp" }>, name: string, text: string, request: string): void {
    const item: ServerCall = {
      id: this.#writer.newItemId("mcp_call"),
      type: "mcp_call",
      status: "in_progress",
      server_label: tool.label,
      name: tool.name,
      arguments: "",
      approval_request_id: request,
      output: null,
      error: null,
    };
    const call: OpenServerCall = { tool: { ...tool, approval: false }, name, text: "", outputIndex: -1, deltaHead: "" };
    const index = Number.MIN_SAFE_INTEGER + this.#pending.length;
    this.#open.set(index, call);
    this.#show(call, item);
    this.append(index, text);
    this.#complete(index);
  }

  /** A call is about to be run. */
  start({ item: id }: PendingCall): void {
    const found = this.#find(id);
    if (!found) return;
    const { item, outputIndex } = found;
    const at = { item_id: id, output_index: outputIndex };
    if (item.type === "web_search_call") {
      item.status = "searching";
      this.#writer.emit({ type: "response.web_search_call.searching", ...at });
    } else if (item.type === "code_interpreter_call") {
      item.status = "interpreting";
      this.#writer.emit({ type: "response.code_interpreter_call.interpreting", ...at });
    }
  }

  /** A call has been run. */
  finish({ item: id }: PendingCall, outcome: ToolOutcome): void {
    const found = this.#find(id);
    if (!found) return;
    const { item, outputIndex } = found;
    this.#pending = this.#pending.filter((call) => call.item !== id);
    const { failed, output } = outcome;
    item.status = failed ? "failed" : "completed";
    switch (item.type) {
      case "mcp_call":
        item.output = failed ? null : output;
        item.error = outcome.error ?? null;
        this.#writer.emit({
          type: `response.mcp_call.${failed ? "failed" : "completed"}`,
          item_id: id,
          output_index: outputIndex,
        });
        break;
      case "web_search_call":
        if (outcome.action) item.action = this.#withSources(outcome);
        this.#writer.emit({ type: "response.web_search_call.completed", item_id: id, output_index: outputIndex });
        break;
      case "code_interpreter_call":
        if (this.#shown.outputs) item.outputs = [{ type: "logs", logs: output }];
        this.#writer.emit({ type: "response.code_interpreter_call.completed", item_id: id, output_index: outputIndex });
        break;
    }
    this.#writer.emit({ type: "response.output_item.done", output_index: outputIndex, item });
  }

  /** Ends what is still open or unanswered as incomplete. `silent`: no event says so. */
  close(silent: boolean): void {
    const left = [...this.#open.values(), ...this.#pending.map(({ item }) => this.#find(item))];
    this.#open.clear();
    this.#pending = [];
    for (const call of left) {
      if (!call?.item) continue;
      const { item, outputIndex } = call;
      const wasOpen = "text" in call;
      item.status = "incomplete";
      if (silent) continue;
      const at = { item_id: item.id, output_index: outputIndex };
      if (wasOpen && item.type === "mcp_call") {
        this.#writer.emit({ type: "response.mcp_call_arguments.done", ...at, arguments: item.arguments });
      }
      if (wasOpen && item.type === "code_interpreter_call") {
        this.#writer.emit({ type: "response.code_interpreter_call_code.done", ...at, code: item.code ?? "" });
      }
      this.#writer.emit({ type: "response.output_item.done", output_index: outputIndex, item });
    }
  }

  /** Forgets what is open or unanswered: its items are taken back. */
  withdraw(): void {
    this.#open.clear();
    this.#pending = [];
  }

  #withSources({ action, sources }: ToolOutcome) {
    if (action?.type !== "search" || !this.#shown.sources || !sources) return action ?? { type: "search", query: "" };
    return { ...action, sources: sources.map(({ url }) => ({ type: "url" as const, url })) };
  }

  #showCode(call: OpenServerCall, code: string): void {
    const id = this.#writer.newItemId("code_interpreter_call");
    this.#show(call, {
      id,
      type: "code_interpreter_call",
      status: "in_progress",
      code: null,
      container_id: this.#container,
      outputs: null,
    });
    if (call.item?.type === "code_interpreter_call") call.item.code = code;
    this.#writer.delta(CODE_DELTA, call.deltaHead, code);
  }

  #show(call: OpenServerCall, item: ServerCall): void {
    call.item = item;
    call.outputIndex = this.#writer.addItem(item);
    call.deltaHead = headOf(item, call.outputIndex);
    const at = { item_id: item.id, output_index: call.outputIndex };
    this.#writer.emit({ type: `response.${item.type}.in_progress`, ...at });
  }

  #find(id: string): { item: ServerCall; outputIndex: number } | undefined {
    const outputIndex = this.#response.output.findIndex((item) => item.id === id);
    const item = this.#response.output[outputIndex];
    return item && isServerCall(item) ? { item, outputIndex } : undefined;
  }
}

const ARGUMENTS_DELTA = "response.mcp_call_arguments.delta";
const CODE_DELTA = "response.code_interpreter_call_code.delta";

export function isServerCall(item: OutputItem): item is ServerCall {
  return item.type === "mcp_call" || item.type === "web_search_call" || item.type === "code_interpreter_call";
}

function headOf(item: ServerCall, outputIndex: number): string {
  const type = item.type === "mcp_call" ? ARGUMENTS_DELTA : CODE_DELTA;
  return deltaHead(type, { item_id: item.id, output_index: outputIndex });
}

/** What a browser call is about, as far as its arguments tell before it is run. */
function plannedAction(
  action: "search" | "open" | "find",
  json: string,
): Extract<ServerCall, { type: "web_search_call" }>["action"] {
  const given = parseArguments(json) ?? {};
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  switch (action) {
    case "search":
      return { type: "search", query: text(given.query), queries: [text(given.query)] };
    case "open":
      return { type: "open_page", url: typeof given.id === "string" ? given.id : null };
    case "find":
      return { type: "find_in_page", pattern: text(given.pattern), url: "" };
  }
}
