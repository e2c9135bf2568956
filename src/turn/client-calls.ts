import type { ModelDelta } from "../contract/engine.ts";
import { newCallId } from "../protocol/ids.ts";
import { isJson, parseArguments } from "../protocol/json.ts";
import type { OutputItem } from "../protocol/response.ts";
import { deltaHead, type EventWriter } from "./output-events.ts";
import type { OutputSize } from "./output-size.ts";
import type { TurnState } from "./state.ts";

/**
 * Function calls that the client answers. Several may be open, because an upstream may interleave their arguments: a
 * call is done when something else begins and its arguments are complete JSON, or at the end of the round.
 */

type FunctionCall = Extract<OutputItem, { type: "function_call" }>;
type CallDelta = Extract<ModelDelta, { kind: "tool_call" }>;

interface OpenCall {
  item: FunctionCall;
  outputIndex: number;
  /** The JSON of its delta events up to their sequence number. */
  deltaHead: string;
}

const ARGUMENTS_DELTA = "response.function_call_arguments.delta";

export class ClientCalls {
  readonly #writer: EventWriter;
  readonly #size: OutputSize;
  /** Call ids that the prompt or this turn has. */
  readonly #usedCallIds: Set<string>;
  /** By the index that the engine gives them. */
  readonly #open = new Map<number, OpenCall>();
  /**
   * The call that was open when the turn was cut off. The index that the engine gave it is not known any more: the next
   * arguments that belong to no other call are its own.
   */
  #resumed: OpenCall | undefined;

  /** A call that is open in the state goes on. */
  constructor(state: TurnState, writer: EventWriter, size: OutputSize, usedCallIds: Set<string>) {
    this.#writer = writer;
    this.#size = size;
    this.#usedCallIds = usedCallIds;
    for (const [outputIndex, item] of state.output.entries()) {
      if (item.type !== "function_call" || item.status !== "in_progress" || state.superseded.has(item.id)) continue;
      this.#resumed = newOpenCall(item, outputIndex);
      this.#open.set(resumedIndex(this.#resumed), this.#resumed);
    }
  }

  has(index: number): boolean {
    return this.#open.has(index);
  }

  get isOpen(): boolean {
    return this.#open.size > 0;
  }

  /** Gives the call that was open when the turn was cut off this delta's index. False where the delta is not its own. */
  resume({ index, name }: CallDelta): boolean {
    const call = this.#resumed;
    if (!call || name !== undefined) return false;
    this.#resumed = undefined;
    this.#open.delete(resumedIndex(call));
    this.#open.set(index, call);
    return true;
  }

  begin(index: number, name: string, callId: string | undefined): void {
    this.#size.addFrames(1);
    const item: FunctionCall = {
      id: this.#writer.newItemId("function_call"),
      type: "function_call",
      status: "in_progress",
      call_id: this.#claimCallId(callId),
      name,
      arguments: "",
    };
    this.#open.set(index, newOpenCall(item, this.#writer.addItem(item)));
  }

  /** Adds to the arguments of an open call. */
  append(index: number, text: string): void {
    const call = this.#open.get(index);
    if (!call) return;
    call.item.arguments += text;
    this.#size.addText(text);
    this.#writer.delta(ARGUMENTS_DELTA, call.deltaHead, text);
  }

  /** Ends a call before its arguments were whole. False where it is not open. */
  cut(index: number): boolean {
    const call = this.#open.get(index);
    if (call) this.#close(index, call, "incomplete", false);
    return call !== undefined;
  }

  /** Ends the calls whose arguments are complete, because something else begins. Gives their indices. */
  closeComplete(): number[] {
    return this.#closeWhere(({ item }) => isWhole(item.arguments));
  }

  /** Ends all calls: the model has finished them. Gives their indices. */
  closeAll(): number[] {
    return this.#closeWhere(() => true);
  }

  /**
   * Ends what is open when the turn ends. In one that is `truncated` a call is complete if its arguments are and
   * something came after it. `isSilent`: no event says so.
   */
  closeTurn(truncated: boolean, last: number, isSilent: boolean): void {
    for (const [index, call] of this.#open) {
      const isComplete = !truncated || (call.outputIndex !== last && isJson(call.item.arguments));
      this.#close(index, call, isComplete ? "completed" : "incomplete", isSilent);
    }
  }

  /** The model is to say anew what broke off: what follows belongs to no call from before. */
  forgetResumed(): void {
    this.#resumed = undefined;
  }

  /** Forgets all calls: their items are taken back. */
  withdraw(): void {
    this.#open.clear();
    this.#resumed = undefined;
  }

  #closeWhere(isDone: (call: OpenCall) => boolean): number[] {
    const done = [...this.#open].filter(([, call]) => isDone(call));
    for (const [index, call] of done) this.#close(index, call, "completed", false);
    return done.map(([index]) => index);
  }

  #close(index: number, call: OpenCall, status: "completed" | "incomplete", isSilent: boolean): void {
    const { item, outputIndex } = call;
    this.#open.delete(index);
    // What comes after its end belongs to no call.
    if (call === this.#resumed) this.#resumed = undefined;
    if (status === "completed" && item.arguments === "") {
      item.arguments = "{}";
      if (!isSilent) this.#writer.delta(ARGUMENTS_DELTA, call.deltaHead, "{}");
    }
    item.status = status;
    const { id, name, arguments: json } = item;
    const at = { item_id: id, output_index: outputIndex };
    this.#writer.emit({ type: "response.function_call_arguments.done", ...at, name, arguments: json }, isSilent);
    this.#writer.emit({ type: "response.output_item.done", output_index: outputIndex, item }, isSilent);
  }

  /** The model's own call id where it is usable (some templates insist on their form), else a new one. */
  #claimCallId(offered: string | undefined): string {
    const used = this.#usedCallIds;
    const id = offered && offered.length <= 64 && !used.has(offered) ? offered : newCallId();
    used.add(id);
    return id;
  }
}

function newOpenCall(item: FunctionCall, outputIndex: number): OpenCall {
  return { item, outputIndex, deltaHead: deltaHead(ARGUMENTS_DELTA, { item_id: item.id, output_index: outputIndex }) };
}

/** No engine gives an index below zero. */
function resumedIndex({ outputIndex }: OpenCall): number {
  return -1 - outputIndex;
}

/** Whether the arguments of a function are there, and complete. */
function isWhole(text: string): boolean {
  return text.trim() !== "" && parseArguments(text) !== undefined;
}
