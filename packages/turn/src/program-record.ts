import type { ProgramRun } from "@responses-edge/programs/contract";
import { isOfOtherAgent } from "@responses-edge/responses-api/items/multi-agent";
import type { InputPart } from "@responses-edge/responses-api/items/parts";
import {
  answeredId,
  calledId,
  clientCallOf,
  clientOutputOf,
  type Item,
  isClientCall,
  isServerCall,
  programOf,
  withoutAsked,
} from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { ToolExchange } from "./contract/engine.ts";

/**
 * The record of a program: its calls and their results, as the items of its conversation have them. A program is never
 * held open. It runs again from its beginning with its record, in another turn or after a crash.
 *
 * The `call_id` of each call ends in its number among the program's calls. Results have the order in which the program got
 * them. Those of the client come with its next request, in the order of their items. Those of hosted tools come as their
 * calls end, which is another order than that of the calls: `result_index` of each item has it.
 */

type ProgramItem = Extract<Item, { type: "program" }>;
type Result = ProgramRun["results"][number];

export interface ProgramRecord {
  item: ProgramItem;
  /** The items of its calls, by their numbers. */
  calls: Map<number, Item>;
  /** In the order in which the program got them. */
  results: Result[];
  /** It has its output. */
  isEnded: boolean;
  /** The number of the first hosted call whose result the items do not have. */
  lost: number | undefined;
}

/** The text of a refused call, for the program that made it. */
export const REFUSED = "The user did not approve this call.";

/** Characters of a program's call id that its calls' ids begin with: 64 characters then hold any number. */
const MAX_STEM_LENGTH = 58;

/** The `call_id` of a program's call. */
export function programCallId(program: string, sequence: number): string {
  return `${program.slice(0, MAX_STEM_LENGTH)}_${sequence}`;
}

function sequenceOf(item: object): number {
  const id = "call_id" in item && typeof item.call_id === "string" ? item.call_id : "";
  const digits = /_(\d{1,4})$/.exec(id)?.[1];
  return digits === undefined ? -1 : Number(digits);
}

/** Tells whether any of the items is a program. */
export function hasPrograms(items: readonly { type: string }[]): boolean {
  return items.some(({ type }) => type === "program");
}

/** How a record reads the items of calls. */
export interface RecordReading {
  /** The exchange of a hosted call; undefined if its result is unknown. */
  exchangeOf(item: Item): ToolExchange | undefined;
  /** True if the outputs of the client's tool, by its flat name, are JSON (`output_schema`). */
  hasJsonOutput(name: string): boolean;
}

/** The programs among the items of a conversation, oldest first, by their call ids. */
export function readPrograms(items: readonly Item[], reading: RecordReading): Map<string, ProgramRecord> {
  const programs = new Map<string, ProgramRecord>();
  const calls = new Map<string, { record: ProgramRecord; sequence: number; item: Item }>();
  const requests = new Map<string | undefined, { record: ProgramRecord; sequence: number }>();
  const answered = new Set<string>();
  const give = ({ item: { call_id } }: ProgramRecord, { sequence }: Result): boolean => {
    const key = programCallId(call_id, sequence);
    if (answered.has(key)) return false;
    answered.add(key);
    return true;
  };
  const add = (record: ProgramRecord, result: Result) => {
    if (give(record, result)) record.results.push(result);
  };
  for (const item of items) {
    // It goes on in the task of its agent.
    if (isOfOtherAgent(item)) continue;
    if (item.type === "program") {
      if (programs.has(item.call_id)) continue;
      programs.set(item.call_id, { item, calls: new Map(), results: [], isEnded: false, lost: undefined });
      continue;
    }
    if (item.type === "program_output") {
      const record = programs.get(item.call_id);
      if (record) record.isEnded = true;
      continue;
    }
    if (item.type === "mcp_approval_response") {
      const asked = item.approve ? undefined : requests.get(item.approval_request_id);
      if (asked) add(asked.record, { sequence: asked.sequence, error: refusal(item.reason) });
      continue;
    }
    const answers = answeredId(item);
    if (answers !== undefined) {
      const call = calls.get(answers);
      const output = call && clientOutputOf(item)?.output;
      if (!call || output === undefined) continue;
      const { record, sequence } = call;
      const name = clientCallOf(call.item)?.flatName ?? "";
      const value = programValue(output, reading.hasJsonOutput(name));
      add(record, { sequence, call: { name, arguments: argumentsOf(call.item) }, output: value });
      continue;
    }
    const record = programs.get(programOf(item) ?? "");
    const sequence = record ? sequenceOf(item) : -1;
    if (!record || sequence < 0) continue;
    record.calls.set(sequence, item);
    const id = calledId(item);
    if (id !== undefined) calls.set(id, { record, sequence, item });
    else if (item.type === "mcp_approval_request") requests.set(item.id, { record, sequence });
    else if (isServerCall(item) && item.status !== "in_progress" && hasEnded(item)) {
      const exchange = reading.exchangeOf(item);
      if (!exchange) record.lost ??= sequence;
      else if (item.status === "completed") add(record, { sequence, output: exchange.output });
      else add(record, { sequence, error: exchange.output });
    }
  }
  for (const record of programs.values()) record.results = inOrderOfEnds(record);
  return programs;
}

/** The results, those of hosted tools in the order in which their calls have ended. */
function inOrderOfEnds({ calls, results }: ProgramRecord): Result[] {
  const indexOf = ({ sequence }: Result) => resultIndexOf(calls.get(sequence) ?? {}) ?? -1;
  const hosted = results.filter((result) => indexOf(result) >= 0).sort((a, b) => indexOf(a) - indexOf(b));
  return results.map((result) => (indexOf(result) >= 0 ? (hosted.shift() ?? result) : result));
}

function resultIndexOf(item: object): number | undefined {
  return "result_index" in item && typeof item.result_index === "number" ? item.result_index : undefined;
}

/** The index of a program's next result from a hosted tool. A branch may have begun with some of the results only. */
export function nextResultIndex(program: string, items: readonly (readonly Item[])[]): number {
  const own = items.flat().filter((item) => programOf(item) === program);
  return own.reduce((next, item) => Math.max(next, (resultIndexOf(item) ?? -1) + 1), 0);
}

function hasEnded(item: { status?: unknown }): boolean {
  return item.status === "completed" || item.status === "failed" || item.status === "incomplete";
}

function refusal(reason: string | null): string {
  return reason ? `${REFUSED} Reason: ${reason}` : REFUSED;
}

/** The client's output as a program gets it: its text, or, where the tool says that it is JSON, the value. */
function programValue(output: string | InputPart[], isJson: boolean): unknown {
  const text = typeof output === "string" ? output : textOf(output);
  if (text === undefined) return output;
  if (!isJson) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** The text of parts; undefined if they are not only text. */
function textOf(parts: readonly InputPart[]): string | undefined {
  let text = "";
  for (const part of parts) {
    if (part.type !== "input_text") return undefined;
    text += part.text;
  }
  return text;
}

/** The arguments of a client's call, as the program gave them. */
function argumentsOf(item: Item): unknown {
  const call = clientCallOf(item);
  return call?.input ?? parseArguments(call?.arguments ?? "");
}

/**
 * The items with the output of each program right after it, and after the calls that were made in parallel with it: a later
 * message of the user's may have come before it, and templates expect answers right after their calls.
 */
export function withOutputsInPlace(items: readonly Item[]): Item[] {
  const moved = new Map<string, Item>();
  let messages = 0;
  const before = new Map<string, number>();
  for (const item of items) {
    if (item.type === "message") messages += 1;
    else if (item.type === "program") before.set(item.call_id, messages);
    else if (item.type === "program_output" && before.get(item.call_id) !== messages) moved.set(item.call_id, item);
  }
  if (moved.size === 0) return [...items];
  const kept = items.filter((item) => item.type !== "program_output" || moved.get(item.call_id) !== item);
  let open: Item[] = [];
  return kept.flatMap((item, index) => {
    const output = item.type === "program" ? moved.get(item.call_id) : undefined;
    if (output) open.push(output);
    const next = kept[index + 1];
    if (open.length === 0 || (next && isClientCall(next))) return [item];
    const outputs = open;
    open = [];
    return [item, ...outputs];
  });
}

/**
 * The items without the calls that programs have made, and the answers to them: of a program a model sees only what it
 * has written, and its output.
 */
export function withoutProgramCalls<T extends Item>(items: readonly T[]): readonly T[] {
  return withoutAsked(items, (item) => programOf(item) !== undefined);
}
