import { forEachAtOnce } from "@responses-edge/bounded-io/long-work";
import { traceparent } from "@responses-edge/otlp";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { ItemEvent, Unnumbered } from "@responses-edge/responses-api/items/events";
import { type Item, isServerCall, programOf, type ServerCall } from "@responses-edge/responses-api/items/registry";
import { isJson } from "@responses-edge/responses-api/json";
import { beginToolCall, endToolCall } from "./contract/measurements.ts";
import type { CallItem, Plugins } from "./contract/plugin.ts";
import {
  type ApprovedCall,
  type CalledTool,
  type MadeBy,
  type PendingCall,
  type ToolOutcome,
  type ToolSession,
  toExchange,
} from "./contract/tool-session.ts";
import { interrupted } from "./faults.ts";
import type { TurnOptions } from "./options.ts";
import { deltaHead, FRAME_LENGTH, type OutputParts } from "./output-events.ts";
import { nextResultIndex } from "./program-record.ts";
import type { RawMessages } from "./raw-messages.ts";
import type { CallAnswer } from "./records.ts";
import { addWhole } from "./whole-items.ts";

/**
 * Calls that this server answers itself, in OpenAI's order: added → in progress → the model's text → (it is run) →
 * completed or failed → done. Each hosted tool defines its items and their events. Some types of calls are known only
 * once they are complete: a search has its query in its arguments, and a call that needs approval is no call yet. Such
 * items are added late, and complete.
 */

interface OpenPluginCall {
  tool: CalledTool;
  /** As in `ToolExchange`. */
  name: string;
  /** Makes its item. */
  shape: CallItem;
  /** The text that the model has written. */
  text: string;
  /** The id of the request by which the client has approved it. */
  approvalRequest: string | null;
  /** Set if a program makes the call. */
  by: MadeBy | undefined;
  /** Absent while nothing can be shown. */
  item?: ServerCall;
  outputIndex: number;
  /** Made with the first delta. */
  deltaHead: string;
}

/** A call whose text has not begun. */
const BEGUN = { text: "", outputIndex: -1, deltaHead: "" };

/** A call's approval and its program, if it has them. */
type Origin = Partial<Pick<ApprovedCall, "request" | "by">>;

/** The fields in which items show what the model writes. */
type ShownWords = Partial<Record<"arguments" | "code", string | null>>;

/** The parts of a turn's output that calls change. */
export interface CallParts extends OutputParts {
  readonly messages: RawMessages;
}

export class PluginCallItems {
  readonly #output: CallParts;
  readonly #past: TurnOptions["past"];
  readonly #plugins: Plugins;
  /** The additional fields to show (`include` of the request). */
  readonly #include: readonly string[];
  readonly #session: ToolSession | undefined;
  readonly #open = new Map<number, OpenPluginCall>();
  /** The items of calls, by their ids. */
  readonly #shown = new Map<string, { item: ServerCall; outputIndex: number }>();
  /** Calls that are complete and not answered yet, by their items. */
  readonly pending = new Map<string, PendingCall>();
  /** Calls that have their answer, whose items a crash has cut off before their end. */
  readonly #cutOff: [call: PendingCall, outcome: ToolOutcome][] = [];
  /** Calls that the turn may still make. */
  left: number;
  /** True if the round may call hosted tools. If no tool was offered, the model's calls are ignored. */
  isOffered = true;
  /** Calls of the round beyond the turn's limit. */
  ignored = 0;

  /** Calls that are open in the state continue. */
  constructor(
    output: CallParts,
    { asked: { request }, past, tools }: Pick<TurnOptions, "past" | "tools"> & { asked: { request: CreateRequest } },
  ) {
    this.#past = past;
    this.#output = output;
    this.#plugins = tools.plugins;
    this.#include = request.include ?? [];
    this.#session = tools.session;
    const { state } = output;
    this.left = request.max_tool_calls ?? Number.POSITIVE_INFINITY;
    const { calls: ofRound = [], answered } = state.answering ?? {};
    // Those that the model has completed, or a program has made, since the round's were known.
    const completed = [...ofRound, ...state.round.called];
    for (const [outputIndex, item] of state.output.entries()) {
      if (!isServerCall(item) || state.superseded.has(item.id)) continue;
      this.left -= 1;
      if (item.status === "completed" || item.status === "failed" || item.status === "incomplete") continue;
      this.#shown.set(item.id, { item, outputIndex });
      const pending = completed.find((call) => call.item === item.id);
      const answer = answered?.has(item.id) && state.replays.find((replay) => replay.item === item.id)?.exchange;
      if (pending && answer) {
        this.#cutOff.push([pending, { ...answer, failed: answer.failed === true }]);
        continue;
      }
      // Unanswered, or not finished by the model.
      if (pending) this.pending.set(pending.item, pending);
      else this.#reopen(item, outputIndex);
    }
  }

  /** Takes back calls that were counted. */
  uncount(calls: number): void {
    this.left += calls;
  }

  /**
   * Begins a call, by the name that the model writes. After a crash it continues a call whose item was not in the log:
   * `text` is then all of it so far.
   */
  begin(index: number, written: string, tool: CalledTool, text = "", { request, by }: Origin = {}): void {
    this.left -= 1;
    this.#output.size.length += FRAME_LENGTH;
    const plugin = this.#plugins.of(tool);
    const { item: shape } = plugin;
    // A built-in tool's call has its full name, by whichever engine it was made.
    const name = plugin.fullName?.(tool) ?? written;
    const call: OpenPluginCall = { ...BEGUN, tool, name, shape, by, approvalRequest: request ?? null };
    this.#open.set(index, call);
    if (shape.canShow(tool, "", false)) this.#show(call);
    this.append(index, text);
  }

  /** Adds what the model writes. False where no call of this index is open. */
  append(index: number, text: string): boolean {
    const call = this.#open.get(index);
    if (!call || text === "") return call !== undefined;
    this.#output.size.addText(text);
    call.text += text;
    if (call.item) this.#write(call, call.item, text);
    else if (call.shape.canShow(call.tool, call.text, false)) this.#show(call);
    return true;
  }

  /** Reopens an item from before a crash, which the model has not finished. */
  #reopen(item: ServerCall, outputIndex: number): void {
    const tool = this.#plugins.toolOf(item);
    if (!tool) return;
    const { item: shape } = this.#plugins.of(tool);
    const text = (shape.written && (item as ShownWords)[shape.written.field]) ?? "";
    const unknown = { name: "", approvalRequest: null, by: undefined };
    this.#open.set(-1 - outputIndex, { ...BEGUN, ...unknown, tool, shape, text, item, outputIndex });
  }

  /** Continues, under this index, the call that was open when the turn was cut off. False if none was shown. */
  resume(index: number, name: string, tool: CalledTool): boolean {
    if (this.#open.has(index)) return true;
    const [found] = this.#open;
    if (!found || found[0] >= 0) return false;
    const [before, call] = found;
    this.#open.delete(before);
    this.#open.set(index, { ...call, name: this.#plugins.of(tool).fullName?.(tool) ?? name, tool });
    return true;
  }

  /**
   * Completes the calls whose arguments are complete, because something else begins, or all calls, because the model
   * has finished.
   */
  complete(all: boolean): void {
    for (const [index, call] of this.#open) if (all || isJson(call.text)) this.#complete(index, call);
  }

  #complete(index: number, call: OpenPluginCall | undefined): void {
    if (!call) return;
    this.#open.delete(index);
    const { tool, name, shape } = call;
    // A call that needs approval is not shown before.
    const request = call.item
      ? undefined
      : shape.approvalRequest?.(tool, call.text, (type) => this.#output.writer.newItemId(type));
    if (request) {
      Object.assign(request, call.by);
      const outputIndex = this.#output.writer.addItem(request);
      this.#output.writer.emit({ type: "response.output_item.done", output_index: outputIndex, item: request });
      return;
    }
    if (call.text === "" && call.item && shape.written?.whenEmpty !== undefined) {
      call.text = shape.written.whenEmpty;
      this.#write(call, call.item, call.text);
    }
    if (!call.item && shape.canShow(tool, call.text, true)) this.#show(call);
    if (!call.item) return;
    this.#endWriting(call, call.item);
    const called: PendingCall = { item: call.item.id, tool, name, arguments: call.text };
    this.#output.writer.record({ called });
    this.pending.set(called.item, called);
  }

  /** Adds an approved call: its item comes complete, with the request that it answers. */
  addApproved({ tool, name, arguments: text, request, by }: ApprovedCall): void {
    const index = Number.MIN_SAFE_INTEGER + this.pending.size;
    this.begin(index, name, tool, text, { request, by });
    this.#complete(index, this.#open.get(index));
  }

  /** Adds a program's call, or completes the one with the id `cut`. Gives it, unless it needs the client's approval. */
  call(made: Omit<PendingCall, "item">, by: MadeBy, cut: string | undefined): PendingCall | undefined {
    const { tool, name, arguments: text } = made;
    const found = cut === undefined ? undefined : this.#open.entries().find(([, { item }]) => item?.id === cut);
    const index = found?.[0] ?? Number.MIN_SAFE_INTEGER + this.pending.size;
    const call = this.#open.get(index);
    if (call) {
      call.name = this.#plugins.of(tool).fullName?.(tool) ?? name;
      this.append(index, text.slice(call.text.length));
    } else this.begin(index, name, tool, text, { by });
    const begun = this.#open.get(index);
    this.#complete(index, begun);
    return begun?.item && this.pending.get(begun.item.id);
  }

  /** Tells whether a call that a crash has cut off may be repeated. */
  isRepeatable({ tool }: PendingCall): boolean {
    return this.#plugins.of(tool).isRepeatable === true;
  }

  /** True if no call is under way that may not be repeated. */
  get areRepeatable(): boolean {
    const { dispatched = [], answered } = this.#output.state.answering ?? {};
    const isUnderWay = (id: string) => dispatched.includes(id) && !answered?.has(id);
    return !this.pending.values().some((call) => isUnderWay(call.item) && !this.isRepeatable(call));
  }

  /**
   * Runs calls that wait for an answer. A call that was dispatched before a crash is run again only if that changes
   * nothing, because its progress is unknown. Rejects with the signal's reason when it is aborted; a tool's own failure
   * is an answer.
   */
  async answer(
    { asked, model: { engine }, tools: { session }, host }: Pick<TurnOptions, "asked" | "model" | "tools" | "host">,
    waiting: Iterable<PendingCall>,
  ): Promise<void> {
    const { signal, sink, measured, clock } = host;
    const { state, messages } = this.#output;
    // Identifies the round, whose calls were made in parallel.
    const step = `${asked.address.turn}.${state.rounds}`;
    const dispatchedBefore = new Set(state.answering?.dispatched);
    for (const [call, outcome] of this.#cutOff.splice(0)) this.#endItem(call, outcome);

    await forEachAtOnce(waiting, async (call) => {
      let outcome: ToolOutcome | undefined;
      const isFirst = !dispatchedBefore.has(call.item);
      const given = asked.givenOutput?.item === call.item ? asked.givenOutput : undefined;
      if (given) outcome = { output: given.output, failed: false };
      else if (isFirst) {
        this.start(call);
        // A tool's work cannot be undone.
        if (sink?.commit) sink.commit();
        else sink?.flush();
      }
      if (!given && (isFirst || this.isRepeatable(call))) {
        // Access to them was lost in a restart.
        if (session) {
          const noted = beginToolCall(measured, call, clock());
          outcome = await session.run(call, signal, traceparent(measured.trace, noted.span));
          endToolCall(noted, outcome, clock());
        }
      }
      signal.throwIfAborted();
      outcome ??= interrupted();
      const exchange = toExchange(call, outcome, step);
      // A program's own calls are not told to the model.
      const isTold = programOf(this.#shown.get(call.item)?.item ?? {}) === undefined;
      const told = (isTold && engine.answerMessages?.(exchange, messages.of(call.item).at(-1))) || [];
      this.finish(call, outcome, { item: call.item, exchange, messages: told });
      // Nor can its answer be had again: both are kept at once, where they are kept.
      if (sink?.commit) sink.commit();
      else await sink?.flush();
    });
  }

  /** Notes that a call is about to be run. */
  start({ item: id, tool }: PendingCall): void {
    this.#output.writer.record({ dispatched: id });
    const found = this.#shown.get(id);
    if (!found) return;
    const type = this.#plugins.of(tool).item.start?.(found.item);
    if (type) this.#output.writer.emit({ type, item_id: id, output_index: found.outputIndex });
  }

  /** Notes that a call has been run. */
  finish(call: PendingCall, outcome: ToolOutcome, answer: CallAnswer): void {
    const { writer, size, messages } = this.#output;
    writer.record({ answered: answer });
    size.length += FRAME_LENGTH + 3 * JSON.stringify(answer).length;
    if (answer.messages.length > 0) messages.addAnswer(answer.messages);
    this.#endItem(call, outcome);
  }

  /** Ends the item of a call that has been run. */
  #endItem({ item: id, tool }: PendingCall, outcome: ToolOutcome): void {
    const { size, writer } = this.#output;
    const found = this.#shown.get(id);
    if (!found) return;
    const { item, outputIndex } = found;
    this.pending.delete(id);
    // A search for tools never fails: it may only find none.
    Object.assign(item, { status: outcome.failed && item.type !== "tool_search_call" ? "failed" : "completed" });
    const program = programOf(item);
    if (program !== undefined) {
      const { history, input } = this.#past;
      Object.assign(item, {
        result_index: nextResultIndex(program, [history, input, this.#output.state.output as Item[]]),
      });
    }
    const shape = this.#plugins.of(tool).item;
    const type = shape.finish(item, outcome, this.#include);
    size.length += shape.resultLength?.(item) ?? 0;
    if (type) this.#output.writer.emit({ type, item_id: id, output_index: outputIndex });
    this.#output.writer.emit({ type: "response.output_item.done", output_index: outputIndex, item });
    // Each item is made when those before it have their places.
    for (const result of shape.results?.(outcome, item, (type) => writer.newItemId(type)) ?? []) {
      size.length += FRAME_LENGTH + JSON.stringify(result).length;
      addWhole(writer, result);
    }
  }

  /** Ends everything open or unanswered as incomplete. `silent`: without events. */
  close(silent: boolean): void {
    const open = [...this.#open.values()];
    const unanswered: { tool: CalledTool; shape?: undefined; item?: ServerCall; outputIndex?: number }[] = [];
    for (const { item, tool } of this.pending.values()) unanswered.push({ tool, ...this.#shown.get(item) });
    this.#open.clear();
    this.pending.clear();
    for (const call of [...open, ...unanswered]) {
      if (!call.item || call.outputIndex === undefined) continue;
      const { cutOff = "incomplete" } = this.#plugins.of(call.tool).item;
      Object.assign(call.item, { status: cutOff });
      if (silent) continue;
      if (call.shape) this.#endWriting(call, call.item);
      this.#output.writer.emit({ type: "response.output_item.done", output_index: call.outputIndex, item: call.item });
    }
  }

  /** Forgets the calls that were not shown yet. Gives their number. */
  forgetUnshown(): number {
    const unshown = [...this.#open].filter(([, call]) => !call.item);
    for (const [index] of unshown) this.#open.delete(index);
    this.uncount(unshown.length);
    return unshown.length;
  }

  /** Forgets everything open or unanswered, because the items are withdrawn. */
  withdraw(): void {
    this.#open.clear();
    this.pending.clear();
  }

  #show(call: OpenPluginCall): void {
    const { shape, tool, text, approvalRequest } = call;
    const id = this.#output.writer.newItemId(shape.type);
    const item = shape.create(tool, { id, text, container: this.#session?.container() ?? "", approvalRequest });
    Object.assign(item, call.by);
    call.item = item;
    call.outputIndex = this.#output.writer.addItem(item);
    this.#shown.set(id, { item, outputIndex: call.outputIndex });
    if (item.type !== "tool_search_call" && item.type !== "multi_agent_call") {
      const at = { item_id: item.id, output_index: call.outputIndex };
      this.#output.writer.emit({ type: `response.${item.type}.in_progress`, ...at });
    }
    if (shape.written?.whenShown) this.#write(call, item, shape.written.whenShown(text));
  }

  /** Adds the model's text to an item that shows it. */
  #write(call: OpenPluginCall, item: ServerCall, text: string): void {
    const { written } = call.shape;
    if (!written) return;
    const shown = item as ShownWords;
    shown[written.field] = (shown[written.field] ?? "") + text;
    call.deltaHead ||= deltaHead(written.deltaEvent, { item_id: item.id, output_index: call.outputIndex });
    this.#output.writer.delta(written.deltaEvent, call.deltaHead, text);
  }

  #endWriting({ shape: { written }, outputIndex }: OpenPluginCall, item: ServerCall): void {
    if (!written) return;
    const { field, doneEvent: type } = written;
    const words = { [field]: (item as ShownWords)[field] ?? "" };
    this.#output.writer.emit({ type, item_id: item.id, output_index: outputIndex, ...words } as Unnumbered<ItemEvent>);
  }
}
