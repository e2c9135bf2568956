import { env } from "cloudflare:workers";
import {
  excessOf,
  failed,
  loaderRunner,
  MAX_STEP_BYTES,
  type ProgramRun,
  type ProgramRunner,
  type ProgramStep,
  stepOf,
} from "@responses-edge/programs";
import type { PassedBound } from "../contract/bounded-tasks.ts";
import { BOUNDED_TASKS, linesOfTask, type TaskService } from "./bounded-tasks.ts";

/** The binding `worker_loaders` of a deployment (docs/deploy-cloudflare.md#programs). */
const { PROGRAM_LOADER } = env as { PROGRAM_LOADER?: WorkerLoader };

/** A step as a text in JSON: each of its quotes has a backslash more. */
const MAX_LINE_BYTES = 2 * MAX_STEP_BYTES;

/**
 * Runs programs where a hostile one does no harm: under `serve` in a process of its own, on Cloudflare in an isolate that the
 * platform bounds. Undefined on a server that has neither.
 */
export function programRunner(tasks = BOUNDED_TASKS, loader = PROGRAM_LOADER): ProgramRunner | undefined {
  if (tasks) return { step: (run, tenant, signal) => stepElsewhere(tasks, run, tenant, signal) };
  return loader && loaderRunner(loader);
}

const FAULTS: Readonly<Record<PassedBound, string>> = {
  time: "The program takes too much time.",
  memory: "The program takes too much memory.",
};

async function stepElsewhere(
  tasks: TaskService,
  run: ProgramRun,
  tenant: string,
  signal: AbortSignal,
): Promise<ProgramStep> {
  const excess = excessOf(run);
  if (excess) return failed(excess);
  const body = JSON.stringify(run);
  let step: ProgramStep | undefined;
  const lines = linesOfTask<{ step: string }>(tasks, { type: "program", tenant }, body, MAX_LINE_BYTES, signal);
  for (let line = await lines.next(); ; line = await lines.next()) {
    if (!line.done) step = stepOf(new TextEncoder().encode(line.value.step), run);
    else if (line.value && "passed" in line.value) return failed(FAULTS[line.value.passed]);
    else return step ?? failed("The program ends the process that runs it.");
  }
}
