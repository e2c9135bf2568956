import { toApiError } from "@responses-edge/responses-api/errors";
import {
  beginModelCall,
  endModelCall,
  type Measurements,
  type ModelCall,
  type Tokens,
} from "./contract/measurements.ts";
import type { TurnOutput } from "./turn-output.ts";

/** The error of a model call that nobody waits for any more. */
const CANCELLED = "cancelled";

interface CallHost {
  measured: Measurements;
  /** Now, in Unix milliseconds. */
  clock: () => number;
}

/** Notes the model calls of a turn in its measurements, and in its log from their first token on. One call is in progress at most. */
export class NotedCalls {
  readonly #output: Pick<TurnOutput, "state" | "writer">;
  readonly #host: CallHost;

  constructor(output: Pick<TurnOutput, "state" | "writer">, host: CallHost) {
    this.#output = output;
    this.#host = host;
  }

  begin(of: Pick<ModelCall, "purpose" | "model">): ModelCall {
    const { measured, clock } = this.#host;
    return beginModelCall(measured, { ...of, round: this.#output.state.rounds, now: clock() });
  }

  /** Notes the first token of the call in progress, unless it is noted already. Gives the call, if there is one. */
  first(): ModelCall | undefined {
    const { measured, clock } = this.#host;
    const call = measured.modelCalls.at(-1);
    if (!call || call.endedAt !== undefined) return undefined;
    if (call.firstChunkAt === undefined) {
      call.firstChunkAt = clock();
      this.#record(call);
    }
    return call;
  }

  /** Notes the end of the call in progress, if there is one. */
  end(tokens: Tokens | undefined): void {
    const { measured, clock } = this.#host;
    this.#record(endModelCall(measured, { now: clock(), tokens }));
  }

  /** Notes that the call in progress has failed, if there is one. `isWanted`: somebody waits for it. */
  fail(error: unknown, isWanted: boolean): void {
    const { measured, clock } = this.#host;
    this.#record(endModelCall(measured, { now: clock(), error: isWanted ? toApiError(error) : CANCELLED }));
  }

  /**
   * Notes a call for a turn that is resumed from its log. Calls that gave nothing are not in it: a model server that is away would
   * fill it.
   */
  #record(call: ModelCall | undefined): void {
    const { writer } = this.#output;
    if (writer.hasLog && call?.firstChunkAt !== undefined) writer.record({ model_call: { ...call } });
  }
}
