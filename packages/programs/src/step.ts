import { isJsonObject, parseJson, structureFault } from "@responses-edge/bounded-io/json-text";
import { BOUNDS } from "./bounds.ts";
import type { ProgramCall, ProgramRun, ProgramStep } from "./contract.ts";

/** Reads answers of isolates. A program runs beside the code that makes them, and may have made one itself: each is checked. */

/** The bytes of a step: a UTF-16 unit takes six at most (as an escape), and each call's frame less than the rest. */
export const MAX_STEP_BYTES = 6 * (BOUNDS.callLength + BOUNDS.outputLength) + 300 * BOUNDS.calls;

/** JSON values in the arguments of all calls. */
const MAX_VALUES = 100_000;

/**
 * The step that an isolate's answer describes. An answer that describes none is the program's failure.
 *
 * @param bytes JSON, at most `MAX_STEP_BYTES`.
 */
export function stepOf(bytes: Uint8Array, run: ProgramRun): ProgramStep {
  return checked(bytes, run) ?? failed("The program has changed what runs it.");
}

/** The end of a program that failed, with a reason for the model. */
export function failed(output: string): ProgramStep {
  return { type: "ended", status: "failed", output };
}

function checked(bytes: Uint8Array, run: ProgramRun): ProgramStep | undefined {
  if (structureFault(bytes, MAX_VALUES))
    return failed("The arguments of a call are nested too deeply, or have too many values.");
  const answer = parsed(bytes);
  if (!isJsonObject(answer)) return undefined;
  const { type } = answer;
  if (type === "ended") {
    const { status, output } = answer;
    if ((status !== "completed" && status !== "failed") || typeof output !== "string") return undefined;
    return { type, status, output };
  }
  const { calls, console } = answer;
  if (type !== "calls" || typeof console !== "string" || !Array.isArray(calls)) return undefined;
  return areOpenCalls(calls, run) ? { type, calls, console } : undefined;
}

function parsed(bytes: Uint8Array): unknown {
  try {
    return parseJson(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

/** True of calls of known tools, whose sequences ascend and have no result. */
function areOpenCalls(calls: readonly unknown[], { tools, results }: ProgramRun): calls is readonly ProgramCall[] {
  const names = new Set(tools);
  const answered = new Set(results.map(({ sequence }) => sequence));
  let last = -1;
  return calls.every((call) => {
    if (!isJsonObject(call) || !("arguments" in call)) return false;
    const { sequence, name } = call;
    if (!Number.isInteger(sequence) || answered.has(Number(sequence)) || !names.has(String(name))) return false;
    const isNext = Number(sequence) > last && Number(sequence) < BOUNDS.calls;
    last = Number(sequence);
    return isNext && typeof name === "string";
  });
}
