import { newCallId } from "@responses-edge/responses-api/ids";
import type { ClientCallItem } from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { ClientTool } from "@responses-edge/responses-api/tool-names";
import { isShownWhole, readCall, type WholeTool } from "./contract/client-functions.ts";
import { CustomInput } from "./contract/custom-input.ts";
import type { ModelDelta } from "./contract/engine.ts";
import type { MadeBy } from "./contract/tool-session.ts";
import { deltaHead, FRAME_LENGTH, type OutputParts } from "./output-events.ts";

/**
 * Calls that the client answers. Several may be open, because an upstream may interleave their arguments: a call is
 * done when something else begins and its arguments are complete, or at the end of the round.
 *
 * Calls of functions and custom tools are shown while they are written. The type of any other call is unknown until it
 * is complete: its item is added late, and complete.
 */

type WrittenItem = Extract<ClientCallItem, { type: "function_call" | "custom_tool_call" }>;
type FunctionCall = Extract<ClientCallItem, { type: "function_call" }>;
type CustomCall = Extract<ClientCallItem, { type: "custom_tool_call" }>;
type WholeItem = Exclude<ClientCallItem, WrittenItem>;
type CallDelta = Extract<ModelDelta, { kind: "tool_call" }>;

interface PlacedCall {
  outputIndex: number;
  /** The JSON of its delta events up to their sequence number. */
  deltaHead: string;
}

type OpenCall =
  | (PlacedCall & { kind: "function"; item: FunctionCall })
  | (PlacedCall & { kind: "custom"; item: CustomCall; input: CustomInput })
  /** A call that is not shown yet, with everything that the model has written of it. */
  | { kind: "whole"; tool: WholeTool; callId: string; text: string; by: Caller | undefined };

/** The caller of a call that a program has made. */
type Caller = Pick<MadeBy, "caller">;

const ARGUMENTS_DELTA = "response.function_call_arguments.delta";
const INPUT_DELTA = "response.custom_tool_call_input.delta";

export class ClientCallItems {
  readonly #output: OutputParts;
  /** Call ids of the prompt and of this turn. */
  readonly #usedCallIds: Set<string>;
  /** Indices of calls that are closed for this round: later arguments with such an index are dropped. */
  readonly #closed: Set<number>;
  /** By the engine's index. */
  readonly #open = new Map<number, OpenCall>();
  /**
   * The call that was open when the generation was cut off. Its engine index is lost: the next arguments that belong to
   * no other call are its own.
   */
  #resumed: PlacedCall | undefined;

  /** A call that is open in the state continues. */
  constructor(output: OutputParts, usedCallIds: Set<string>, closed: Set<number>) {
    this.#output = output;
    this.#usedCallIds = usedCallIds;
    this.#closed = closed;
    const { state } = output;
    for (const [outputIndex, item] of state.output.entries()) {
      if (!isWritten(item) || item.status !== "in_progress" || state.superseded.has(item.id)) continue;
      const call = newOpenCall(item, outputIndex);
      this.#resumed = call;
      this.#open.set(resumedIndex(call), call);
    }
  }

  has(index: number): boolean {
    return this.#open.has(index);
  }

  get isOpen(): boolean {
    return this.#open.size > 0;
  }

  /**
   * Gives this delta's index to the call that was open when the generation was cut off. False if the delta is not its
   * own.
   */
  resume({ index, name }: Pick<CallDelta, "index" | "name">): boolean {
    const resumed = this.#resumed;
    const call = resumed && this.#open.get(resumedIndex(resumed));
    if (!call || name !== undefined) return false;
    this.#resumed = undefined;
    this.#open.delete(resumedIndex(resumed));
    this.#open.set(index, call);
    return true;
  }

  /**
   * Continues a call in whose middle the generation was cut off, with all of its text so far. A shown call is found by
   * its item, and its input is read again; an unshown one begins. False if there is neither.
   */
  resumeWith(index: number, tool: ClientTool | undefined, text: string): boolean {
    if (tool && isShownWhole(tool.tool)) {
      this.begin(index, tool, tool.flatName, undefined);
      this.append(index, text);
      return true;
    }
    const call = this.#resumed && this.#open.get(resumedIndex(this.#resumed));
    if (call?.kind === "custom") {
      // The text so far may end within an escape, which the model begins anew.
      call.input = new CustomInput();
      call.input.push(text);
    }
    return call !== undefined;
  }

  /**
   * Begins a call of a tool, by the name that the model writes; without a tool it is a function that was not offered.
   * `by`: the program that makes it.
   */
  begin(
    index: number,
    tool: ClientTool | undefined,
    name: string,
    offeredId: string | undefined,
    by?: Caller | undefined,
  ): void {
    this.#output.size.length += FRAME_LENGTH;
    const callId = this.#claimCallId(offeredId);
    if (tool && isShownWhole(tool.tool)) {
      this.#open.set(index, { kind: "whole", tool: tool.tool, callId, text: "", by });
      return;
    }
    const common = {
      status: "in_progress",
      call_id: callId,
      name: tool?.name ?? name,
      ...(tool?.namespace !== undefined && { namespace: tool.namespace }),
      // A program waits for all of its calls.
      ...(by ?? (tool && "async" in tool.tool && tool.tool.async && { async: true })),
    } as const;
    const item: WrittenItem =
      tool?.tool.type === "custom"
        ? { id: this.#output.writer.newItemId("custom_tool_call"), type: "custom_tool_call", ...common, input: "" }
        : { id: this.#output.writer.newItemId("function_call"), type: "function_call", ...common, arguments: "" };
    this.#open.set(index, newOpenCall(item, this.#output.writer.addItem(item)));
  }

  /** Adds to the arguments of an open call. */
  append(index: number, text: string): void {
    const call = this.#open.get(index);
    if (!call) return;
    this.#output.size.addText(text);
    switch (call.kind) {
      case "function":
        call.item.arguments += text;
        this.#output.writer.delta(ARGUMENTS_DELTA, call.deltaHead, text);
        return;
      case "custom":
        this.#addInput(call, call.input.push(text));
        return;
      case "whole":
        call.text += text;
    }
  }

  #addInput({ item, deltaHead: head }: Extract<OpenCall, { kind: "custom" }>, text: string): void {
    if (text === "") return;
    item.input += text;
    this.#output.writer.delta(INPUT_DELTA, head, text);
  }

  /** Ends a call with incomplete arguments. */
  cut(index: number): void {
    const call = this.#open.get(index);
    if (call) this.#close(index, call, "incomplete", false);
  }

  /**
   * Ends the calls whose arguments are complete, because something else begins, or all calls, because the model has
   * finished them. `beforeDone` is called before one is done.
   */
  close(all: boolean, beforeDone?: () => void): void {
    for (const [index, call] of this.#open) {
      if (all || isWhole(call)) this.#close(index, call, "completed", false, beforeDone);
    }
  }

  /**
   * Ends open calls at the end of the turn. In a `truncated` turn a call is complete if its arguments are, and
   * something came after it. `isSilent`: without events.
   */
  closeTurn(truncated: boolean, last: number, isSilent: boolean): void {
    for (const [index, call] of this.#open) {
      const isLast = call.kind === "whole" || call.outputIndex === last;
      const isComplete = !truncated || (!isLast && isWhole(call));
      this.#close(index, call, isComplete ? "completed" : "incomplete", isSilent);
    }
  }

  /** Forgets the call that was cut off, because the model is to generate it anew. */
  forgetResumed(): void {
    this.#resumed = undefined;
    this.forgetUnshown();
  }

  /**
   * Forgets the calls that were not shown yet, and the indices of the others, which the next generation counts anew. Gives
   * the number of the forgotten ones.
   */
  forgetUnshown(): number {
    for (const [index, call] of [...this.#open]) {
      if (call.kind === "whole" || index === resumedIndex(call)) continue;
      this.#open.delete(index);
      this.#open.set(resumedIndex(call), call);
      this.#resumed = call;
    }
    const unshown = [...this.#open].filter(([, call]) => call.kind === "whole");
    for (const [index] of unshown) this.#open.delete(index);
    return unshown.length;
  }

  /** Forgets all calls, because their items are withdrawn. */
  withdraw(): void {
    this.#open.clear();
    this.#resumed = undefined;
  }

  #close(
    index: number,
    call: OpenCall,
    status: "completed" | "incomplete",
    isSilent: boolean,
    beforeDone?: () => void,
  ): void {
    this.#open.delete(index);
    this.#closed.add(index);
    // Later arguments belong to no call.
    if (call === this.#resumed) this.#resumed = undefined;
    if (call.kind === "whole") {
      // An incomplete call shows nothing.
      if (status === "completed") this.#show(call, isSilent, beforeDone);
      return;
    }
    const { item, outputIndex } = call;
    const at = { item_id: item.id, output_index: outputIndex };
    if (call.kind === "custom") {
      const rest = call.input.end();
      if (isSilent) call.item.input += rest;
      else this.#addInput(call, rest);
      call.item.status = status;
      this.#output.writer.emit(
        { type: "response.custom_tool_call_input.done", ...at, input: call.item.input },
        isSilent,
      );
    } else {
      if (status === "completed" && call.item.arguments === "") {
        call.item.arguments = "{}";
        if (!isSilent) this.#output.writer.delta(ARGUMENTS_DELTA, call.deltaHead, "{}");
      }
      call.item.status = status;
      const { name, arguments: json } = call.item;
      this.#output.writer.emit(
        { type: "response.function_call_arguments.done", ...at, name, arguments: json },
        isSilent,
      );
    }
    beforeDone?.();
    this.#output.writer.emit({ type: "response.output_item.done", output_index: outputIndex, item }, isSilent);
  }

  /** Adds the item of a complete call. A call without the arguments that its tool needs gets none. */
  #show(
    { tool, callId, text, by }: Extract<OpenCall, { kind: "whole" }>,
    isSilent: boolean,
    beforeDone?: () => void,
  ): void {
    const read = readCall(tool, text);
    // A turn that has failed or was abandoned shows nothing more.
    if (!read || isSilent) return;
    const { writer } = this.#output;
    if (tool.type === "programmatic_tool_calling") {
      const { code } = read as { code: string };
      const program = { call_id: callId, code };
      const item = {
        id: writer.newItemId("program"),
        type: "program",
        ...program,
        fingerprint: this.#output.fingerprint(program),
      } as const;
      const output_index = writer.addItem(item);
      beforeDone?.();
      writer.emit({ type: "response.output_item.done", output_index, item });
      return;
    }
    const type = `${tool.type}_call` as const;
    const whole = {
      id: writer.newItemId(type),
      type,
      call_id: callId,
      ...by,
      ...read,
      status: "completed",
    } as WholeItem;
    // A shell's commands have events of their own.
    const unwritten = whole.type === "shell_call" && { action: { ...whole.action, commands: [] } };
    const output_index = writer.addItem({ ...whole, status: "in_progress", ...unwritten } as WholeItem);
    if (whole.type === "shell_call") {
      for (const [command_index, command] of whole.action.commands.entries()) {
        const at = { output_index, command_index };
        writer.emit({ type: "response.shell_call_command.added", ...at, command: "" });
        writer.emit({ type: "response.shell_call_command.delta", ...at, delta: command });
        writer.emit({ type: "response.shell_call_command.done", ...at, command });
      }
    }
    beforeDone?.();
    writer.emit({ type: "response.output_item.done", output_index, item: whole });
  }

  /** The model's own call id if it is usable (some templates require their format), otherwise a new one. */
  #claimCallId(offered: string | undefined): string {
    const used = this.#usedCallIds;
    const id = offered && offered.length <= 64 && !used.has(offered) ? offered : newCallId();
    used.add(id);
    return id;
  }
}

function isWritten(item: { type: string }): item is WrittenItem {
  return item.type === "function_call" || item.type === "custom_tool_call";
}

function newOpenCall(item: WrittenItem, outputIndex: number): OpenCall & PlacedCall {
  const at = { item_id: item.id, output_index: outputIndex };
  return item.type === "function_call"
    ? { kind: "function", item, outputIndex, deltaHead: deltaHead(ARGUMENTS_DELTA, at) }
    : { kind: "custom", item, input: new CustomInput(), outputIndex, deltaHead: deltaHead(INPUT_DELTA, at) };
}

/** No engine gives an index below zero. */
function resumedIndex({ outputIndex }: PlacedCall): number {
  return -1 - outputIndex;
}

/** Tells whether a call is complete. */
function isWhole(call: OpenCall): boolean {
  switch (call.kind) {
    case "function":
      return hasArguments(call.item.arguments);
    case "custom":
      return !call.input.isCut;
    case "whole":
      return hasArguments(call.text);
  }
}

function hasArguments(text: string): boolean {
  return text.trim() !== "" && parseArguments(text) !== undefined;
}
