/**
 * A program is the JavaScript that a model writes to call tools (OpenAI's `programmatic_tool_calling`). A step runs it from
 * its beginning, with the results that its calls have so far, up to the calls that have none yet. So a program that waits
 * for a tool holds nothing open, and one whose process died runs again.
 */
export interface ProgramRun {
  /** The body of an async function, in strict mode. It may `await` and `return`. */
  code: string;
  /** The names under which the program may call tools: `tools.NAME(args)`. */
  tools: readonly string[];
  /** The seed of `Math.random` and `crypto`: the same in each step of a program. */
  seed: string;
  /** The time at which the program's clock stands, and which only its own timers advance. Unix time in milliseconds. */
  startedAt: number;
  /** The results of earlier steps' calls, in the order in which they came. A program must get each step's results in this order. */
  results: readonly ProgramResult[];
}

/** The result of a call, or the message of its failure, which the program gets as a rejection. */
export type ProgramResult = {
  sequence: number;
  /** The recorded call. If the program makes another one in its place, the step fails as not deterministic. */
  call?: Pick<ProgramCall, "name" | "arguments">;
} & (
  | {
      /** A JSON value. */
      output: unknown;
    }
  | { error: string }
);

export interface ProgramCall {
  /** The number of the call in its program, from 0. */
  sequence: number;
  name: string;
  /** A JSON value: what the program gave as the first argument; `{}` if it gave none. */
  arguments: unknown;
}

export type ProgramStep =
  | {
      /** The program waits for results. */
      type: "calls";
      /** All calls that have no result yet, in the order in which the program made them. Those of an earlier step come again. */
      calls: readonly ProgramCall[];
      /** Its output since its beginning. */
      console: string;
    }
  | {
      type: "ended";
      /** `failed`: the code has a syntax error, the program threw, or it passed a bound. */
      status: "completed" | "failed";
      /** Its output, and then the value that it returned, or its error. For the model. */
      output: string;
    };

export interface ProgramRunner {
  /**
   * Runs a program from its beginning up to its next calls or its end. The same program with the same results makes the same
   * calls. A program with a fault ends as `failed`.
   *
   * @param tenant The owner: tenants never share an isolate, and get their turns one after another.
   * @param signal Ends the step; it rejects with the signal's reason.
   * @throws An error if the server can run no program now. The caller may try again.
   */
  step(run: ProgramRun, tenant: string, signal: AbortSignal): Promise<ProgramStep>;
}
