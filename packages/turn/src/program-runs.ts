import { forEachAtOnce } from "@responses-edge/bounded-io/long-work";
import type { ProgramRun, ProgramStep } from "@responses-edge/programs/contract";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { PROGRAM_TOOL } from "@responses-edge/responses-api/items/program";
import { type Item, isClientCall, isServerCall, type OutputItem } from "@responses-edge/responses-api/items/registry";
import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import type { Tool } from "@responses-edge/responses-api/tools";
import { ClientCallItems } from "./client-call-items.ts";
import { faultOf, isShownWhole, readCall } from "./contract/client-functions.ts";
import { beginToolCall, endToolCall } from "./contract/measurements.ts";
import { pause } from "./contract/pause.ts";
import type { PendingCall } from "./contract/tool-session.ts";
import type { Outcome } from "./decide.ts";
import { programNotRun } from "./faults.ts";
import type { TurnOptions } from "./options.ts";
import { FRAME_LENGTH } from "./output-events.ts";
import { hasPrograms, type ProgramRecord, programCallId, REFUSED, readPrograms } from "./program-record.ts";
import { matchOutputs } from "./prompt.ts";
import { RunningCalls } from "./running-calls.ts";
import type { TurnOutput } from "./turn-output.ts";

/**
 * Runs the programs that a turn's model has written, and those of earlier turns that its client has answered. A program
 * runs in steps, each from its beginning (`ProgramRecord`). Its hosted calls are run at once; with calls that the client
 * answers the turn ends, and a later one goes on with the program.
 */

type StepCall = Extract<ProgramStep, { type: "calls" }>["calls"][number];
type RunOptions = Pick<TurnOptions, "asked" | "past" | "model" | "tools" | "secrets" | "host">;

/** Attempts of a step that the server cannot run now, and the wait between them in milliseconds. */
const MAX_TRIES = 4;
const WAIT_MS = 250;

/** Characters of a program's output that a model gets. */
const MAX_RESULT_LENGTH = 200_000;

const ENDED_EARLY = "The response ended before the program did.";

export class ProgramRuns {
  readonly #options: RunOptions;
  readonly #output: TurnOutput;
  /** The tools of the present prompt. */
  readonly #tools: () => readonly Tool[] | null | undefined;
  /** The items before the turn's output; none if no program is among them. */
  readonly #before: readonly Item[];
  /** The turn's own input. */
  readonly #input: ReadonlySet<Item>;

  /**
   * Throws the 400s of a program in the past that cannot go on: its tool is not there, a call of it has no output, or its
   * fingerprint is not this server's. `isCompacting`: the turn only compacts.
   */
  constructor(
    options: RunOptions,
    output: TurnOutput,
    tools: () => readonly Tool[] | null | undefined,
    isCompacting: boolean,
  ) {
    const { history, input, isTextOnly } = options.past;
    this.#options = options;
    this.#output = output;
    this.#tools = tools;
    const isConcerned = !isTextOnly && (hasPrograms(history) || hasPrograms(input));
    const matched = isConcerned ? matchOutputs(history, input) : [];
    this.#before = isConcerned ? [...history, ...matched] : [];
    this.#input = new Set(matched);
    for (const record of this.#open) this.#check(record, isCompacting);
  }

  /** The programs that have no output. */
  get #open(): ProgramRecord[] {
    if (this.#before.length === 0 && !hasPrograms(this.#output.state.output)) return [];
    return [...this.#records().values()].filter(({ item, isEnded }) => {
      return !isEnded && !(item.id !== undefined && this.#output.state.superseded.has(item.id));
    });
  }

  /** True if a program of an earlier turn goes on, or one of this turn has no output. */
  get areOpen(): boolean {
    return this.#open.length > 0;
  }

  /** Runs the turn's calls of hosted tools, and then its programs. Rejects as `PluginCallItems.answer` does. */
  async answer(): Promise<void> {
    const { calls } = this.#output;
    await calls.answer(this.#options, calls.pending.values());
    await forEachAtOnce(this.#open, (record) => this.#run(record.item.call_id));
  }

  /** Ends the programs of a turn that is over, but for those that wait for its client. */
  close({ status }: Outcome): void {
    if (status === "completed") return;
    for (const { item } of this.#open) this.#end(item.call_id, ENDED_EARLY, "incomplete", status !== "incomplete");
  }

  #records(): Map<string, ProgramRecord> {
    const { plugins } = this.#options.tools;
    const { state } = this.#output;
    const replays = new Map([...this.#options.past.replays, ...state.replays].map((replay) => [replay.item, replay]));
    const items = [...this.#before, ...(state.output as Item[])];
    const own = new Set<Item>(state.output as Item[]);
    const programs = readPrograms(items, {
      exchangeOf: (item) => plugins.exchangeOf(item, replays.get(item.id ?? ""), items),
      hasJsonOutput: (name) => {
        const tool = this.#clientTool(name)?.tool;
        return tool?.type === "function" && tool.output_schema !== undefined;
      },
    });
    for (const { calls, results } of programs.values()) {
      const known = new Set(results.map(({ sequence }) => sequence));
      for (const [sequence, item] of calls) {
        // A request that the client has passed over is refused.
        if (item.type !== "mcp_approval_request" || own.has(item) || known.has(sequence)) continue;
        results.push({ sequence, error: REFUSED });
      }
    }
    return programs;
  }

  #check({ item, calls, results, lost }: ProgramRecord, isCompacting: boolean): void {
    const { tools } = this.#options;
    const { call_id: id } = item;
    if (isCompacting) throw invalidRequest("input", `The program ${id} has not ended: it cannot be compacted.`);
    const isOffered = ClientTools.of(this.#tools()).get(PROGRAM_TOOL) !== undefined;
    if (!isOffered || !tools.programs) {
      const need = "It goes on with the tool 'programmatic_tool_calling'.";
      throw invalidRequest("input", `No tool output found for program ${id}. ${need}`);
    }
    if (this.#startOf(item) === undefined) {
      throw invalidRequest("input", `The fingerprint of program ${id} is not this server's for it.`);
    }
    if (lost !== undefined) {
      const name = programCallId(id, lost);
      throw invalidRequest("input", `The result of the program's call ${name} is not in the input.`);
    }
    const known = new Set(results.map(({ sequence }) => sequence));
    const own = new Set<Item>(this.#output.state.output as Item[]);
    for (const [sequence, call] of calls) {
      if (!isClientCall(call) || known.has(sequence) || own.has(call)) continue;
      const what = call.type.replaceAll("_", " ");
      throw invalidRequest("input", `No tool output found for ${what} ${programCallId(id, sequence)}.`);
    }
  }

  #startOf(item: ProgramRecord["item"]): number | undefined {
    return this.#options.secrets.programs.startOf(item, !this.#input.has(item));
  }

  /** The client's tool that programs call by a name. */
  #clientTool(name: string): ClientTool | undefined {
    return ClientTools.of(this.#tools()).forPrograms.find((tool) => tool.flatName === name);
  }

  async #run(id: string): Promise<void> {
    const { measured, clock, sink } = this.#options.host;
    const noted = beginToolCall(measured, { tool: { kind: "program" }, name: PROGRAM_TOOL }, clock());
    const running = new RunningCalls((call) => this.#output.calls.answer(this.#options, [call]));
    let failed = true;
    try {
      failed = (await this.#steps(id, running).finally(() => running.untilAll())) === "failed";
    } finally {
      endToolCall(noted, { failed }, clock());
      sink?.flush();
    }
  }

  /**
   * Steps of a program until it ends, or until it waits for the client. A step comes after each result, or after the few
   * that have come during the last step. The program ends when all of its calls have ended.
   */
  async #steps(id: string, running: RunningCalls): Promise<"ended" | "failed" | "waits"> {
    const { signal, sink } = this.#options.host;
    for (;;) {
      signal.throwIfAborted();
      const { ended } = running;
      const record = this.#records().get(id);
      if (!record) return "ended";
      const step = await this.#step(record);
      if (step.type === "ended") {
        await running.untilAll();
        const status = step.status === "completed" ? "completed" : "incomplete";
        this.#end(id, step.output, status);
        return step.status === "completed" ? "ended" : "failed";
      }
      const begun = this.#begin(record, step.calls);
      if ("fault" in begun) {
        await running.untilAll();
        this.#end(id, `${step.console}${begun.fault}`, "incomplete");
        return "failed";
      }
      sink?.flush();
      running.add(begun.hosted);
      if (running.ended > ended) continue;
      if (running.areOver) return "waits";
      await running.untilNext();
    }
  }

  /** A step. One that the server cannot run now is tried again a few times. */
  async #step({ item, results }: ProgramRecord): Promise<ProgramStep> {
    const { tools, host } = this.#options;
    const clients = ClientTools.of(this.#tools()).forPrograms;
    const hosted = tools.session?.pluginTools.forPrograms ?? [];
    const run: ProgramRun = {
      code: item.code,
      tools: [...clients.map(({ flatName }) => flatName), ...hosted.map(({ name }) => name)],
      seed: item.fingerprint,
      startedAt: this.#startOf(item) ?? 0,
      results,
    };
    for (let tries = 1; ; tries += 1) {
      try {
        if (!tools.programs) throw new TypeError("There is no runner of programs.");
        return await tools.programs.step(run, host.signal);
      } catch {
        host.signal.throwIfAborted();
        if (tries === MAX_TRIES) throw programNotRun();
        await pause(WAIT_MS * tries, host.signal);
      }
    }
  }

  /**
   * Makes the items of a step's new calls. Gives the calls of hosted tools among them, or why the program has to end: for
   * the model.
   */
  #begin(record: ProgramRecord, calls: readonly StepCall[]): { hosted: PendingCall[] } | { fault: string } {
    const { asked, tools } = this.#options;
    const { calls: hostedCalls, size, state } = this.#output;
    const isNew = ({ sequence }: StepCall) => {
      const item = record.calls.get(sequence);
      return !item || (isUnwritten(item) && !hostedCalls.pending.has(item.id ?? ""));
    };
    const fresh = calls.filter(isNew);
    const waits = calls.some((call) => !isNew(call));
    if (fresh.length === 0) return waits ? { hosted: [] } : { fault: "The program waits for nothing." };
    const found = fresh.map((call) => ({ call, client: this.#clientTool(call.name) }));
    let { left } = hostedCalls;
    for (const { call, client } of found) {
      // An item that a crash has cut off is counted already.
      if (!client && !record.calls.has(call.sequence)) left -= 1;
      const fault = this.#faultOf(call, client, left);
      if (fault !== undefined) return { fault: `Error: tools.${call.name} cannot be called: ${fault}` };
    }
    const hosted: PendingCall[] = [];
    const by = { caller: { type: "program" as const, caller_id: record.item.call_id } };
    const isParallel = asked.request.parallel_tool_calls ?? true;
    let isWaiting = state.output.some((item) => isClientCall(item) && "caller" in item && isUnanswered(record, item));
    for (const { call, client } of found) {
      const call_id = programCallId(record.item.call_id, call.sequence);
      const item = record.calls.get(call.sequence) as OutputItem | undefined;
      if (client) {
        if (isWaiting && !isParallel) continue;
        isWaiting = true;
        this.#callClient(client, textOf(call, client), { call_id, ...by }, item);
        continue;
      }
      const tool = tools.session?.callable(call.name);
      if (!tool) continue;
      const made = hostedCalls.call({ tool, name: call.name, arguments: textOf(call) }, { ...by, call_id }, item?.id);
      if (made) hosted.push(made);
    }
    return size.isFull ? { fault: "Error: the response cannot hold more calls." } : { hosted };
  }

  /** Why a call cannot be made, in words for the model. `left`: the calls that the turn may make after this one. */
  #faultOf(call: StepCall, client: ClientTool | undefined, left: number): string | undefined {
    if (client) return faultOf(client, textOf(call, client));
    const { session } = this.#options.tools;
    if (!session?.callable(call.name)) return "there is no tool of this name.";
    if (left < 0) return "this response may make no more calls ('max_tool_calls').";
    return this.#options.host.clock() >= session.deadline ? "the tools of this response have no time left." : undefined;
  }

  /** Makes the item of a client's call, or ends the writing of one that a crash has cut off. */
  #callClient(
    tool: ClientTool,
    text: string,
    by: { call_id: string; caller: { type: "program"; caller_id: string } },
    cut: OutputItem | undefined,
  ): void {
    const { call_id: id, caller } = by;
    if (cut && isShownWhole(tool.tool)) {
      const output_index = this.#output.state.output.indexOf(cut);
      const item = { ...cut, ...readCall(tool.tool, text), status: "completed" } as OutputItem;
      this.#output.writer.emit({ type: "response.output_item.done", output_index, item });
      return;
    }
    const items = new ClientCallItems(this.#output, new Set(), new Set());
    if (cut) items.resumeWith(0, tool, writtenOf(cut));
    if (cut && items.resume({ index: 0 })) items.append(0, text.slice(writtenOf(cut).length));
    else {
      items.begin(0, tool, tool.flatName, id, { caller });
      items.append(0, text);
    }
    items.close(true);
  }

  #end(id: string, text: string, status: "completed" | "incomplete", isSilent = false): void {
    const { writer, size, state } = this.#output;
    const result = text.length > MAX_RESULT_LENGTH ? `${text.slice(0, MAX_RESULT_LENGTH)}\n[cut off]` : text;
    size.length += FRAME_LENGTH;
    size.addText(result);
    const item = {
      id: writer.newItemId("program_output"),
      type: "program_output",
      call_id: id,
      result,
      status,
    } as const;
    const output_index = state.output.length;
    writer.emit({ type: "response.output_item.added", output_index, item }, isSilent);
    writer.emit({ type: "response.output_item.done", output_index, item }, isSilent);
  }
}

/** The arguments of a call, as the text that the model would have written. */
function textOf({ arguments: given }: StepCall, client?: ClientTool): string {
  const isText = client?.tool.type === "custom";
  return JSON.stringify(isText ? { input: typeof given === "string" ? given : JSON.stringify(given) } : given) ?? "{}";
}

/** The text of a written call that was cut off, as far as its item has it. */
function writtenOf(item: OutputItem): string {
  if (item.type === "function_call") return item.arguments;
  return item.type === "custom_tool_call" ? JSON.stringify({ input: item.input }).slice(0, -2) : "";
}

/** Tells whether a call's item was added, and not completed: a crash has cut it off. */
function isUnwritten(item: Item): boolean {
  return (isClientCall(item) || isServerCall(item)) && item.type !== "program" && item.status === "in_progress";
}

function isUnanswered({ calls, results }: ProgramRecord, item: OutputItem): boolean {
  for (const [sequence, call] of calls) {
    if (call === (item as Item)) return !results.some((result) => result.sequence === sequence);
  }
  return false;
}
