import { ReadFault, readBounded } from "@responses-edge/bounded-io/body";
import { BOUNDS } from "./bounds.ts";
import type { ProgramRun, ProgramRunner, ProgramStep } from "./contract.ts";
import isolate from "./isolate.js?raw";
import { failed, MAX_STEP_BYTES, stepOf } from "./step.ts";

/**
 * Before the runtime's modules of Node.js became part of it, and after it let a starting isolate make code from texts: a
 * program is made so.
 */
const COMPATIBILITY_DATE = "2025-06-01";

/** For a step, by the clock. A busy machine may give it little of its processor. Milliseconds. */
const STEP_MS = 60_000;

/**
 * Runs programs in isolates of the Worker Loader, a new one for each step, which has no binding and no network.
 *
 * Where the platform does not bound the processor time of an isolate (workerd does not), a hostile program keeps the whole
 * process busy: run it in one that can be ended.
 */
export function loaderRunner(loader: Pick<WorkerLoader, "load">): ProgramRunner {
  return {
    async step(run, _tenant, signal) {
      signal.throwIfAborted();
      const fault = excessOf(run);
      if (fault) return failed(fault);
      const isolate = isolateOf(loader, run.code);
      const body = JSON.stringify({ ...run, code: undefined, bounds: BOUNDS });
      const late = new AbortController();
      const timer = setTimeout(() => late.abort(), STEP_MS);
      const ended = AbortSignal.any([signal, late.signal]);
      try {
        const answer = await isolate.fetch("http://program/", { method: "POST", body, signal: ended });
        const bytes = await readBounded(answer, { maxBytes: MAX_STEP_BYTES, timeoutMs: STEP_MS, signal: ended });
        return answer.status === 400 ? await syntaxFault(loader, run.code, bytes) : stepOf(bytes, run);
      } catch (error) {
        signal.throwIfAborted();
        if (late.signal.aborted) return failed("The program takes too much time.");
        if (error instanceof ReadFault && error.kind === "too_large") return failed("The program writes too much.");
        return failed(`The program was ended: ${error instanceof Error ? error.message : error}`);
      } finally {
        clearTimeout(timer);
      }
    },
  };
}

/** The fault of a run whose code or results are too long, for the model. */
export function excessOf({ code, results }: ProgramRun): string | undefined {
  if (code.length > BOUNDS.codeLength) return `The program is longer than ${BOUNDS.codeLength} characters.`;
  let length = 0;
  for (const result of results) {
    length += "error" in result ? result.error.length : (JSON.stringify(result.output) ?? "").length;
    if (length > BOUNDS.resultLength) return `The program's results have more than ${BOUNDS.resultLength} characters.`;
  }
  return undefined;
}

function isolateOf(loader: Pick<WorkerLoader, "load">, code: string): Fetcher {
  return load(loader, "isolate.js", { "isolate.js": { js: isolate }, "program.txt": { text: code } });
}

function load(
  loader: Pick<WorkerLoader, "load">,
  mainModule: string,
  modules: WorkerLoaderWorkerCode["modules"],
): Fetcher {
  return loader
    .load({
      mainModule,
      modules,
      compatibilityDate: COMPATIBILITY_DATE,
      env: {},
      globalOutbound: null,
      limits: { cpuMs: BOUNDS.cpuMs },
    })
    .getEntrypoint();
}

/** The failure of a program with a syntax error, with its line, which only the text of a module tells. */
async function syntaxFault(
  loader: Pick<WorkerLoader, "load">,
  code: string,
  message: Uint8Array,
): Promise<ProgramStep> {
  const fault = new TextDecoder().decode(message.subarray(0, MAX_SYNTAX_BYTES));
  const js = `export default {}; async function program() {${code}\n}`;
  const line = await load(loader, "program.js", { "program.js": { js } })
    .fetch("http://program/")
    .then(
      () => undefined,
      (error: unknown) => /SyntaxError[\s\S]*program\.js:(\d+)/.exec(String(error))?.[1],
    );
  return failed(line ? `${fault} (line ${line})` : fault);
}

/** V8's own messages are shorter. */
const MAX_SYNTAX_BYTES = 1_000;
