import { MAX_CONCURRENT } from "@responses-edge/bounded-io/long-work";
import type { PendingCall } from "./contract/tool-session.ts";

/** The hosted calls of a program that have not ended: at most `MAX_CONCURRENT` run, the others wait for that. */
export class RunningCalls {
  readonly #run: (call: PendingCall) => Promise<void>;
  #waiting: PendingCall[] = [];
  #running = 0;
  #fault: { reason: unknown } | undefined;
  #next = Promise.withResolvers<void>();
  /** The number of calls that have ended. */
  ended = 0;

  /** `run` runs a call, and keeps its result. If it rejects, no other call begins. */
  constructor(run: (call: PendingCall) => Promise<void>) {
    this.#run = run;
  }

  add(calls: readonly PendingCall[]): void {
    this.#waiting.push(...calls);
    this.#begin();
  }

  /** True if no call runs, nor waits. */
  get areOver(): boolean {
    return this.#running === 0;
  }

  /** Resolves when the next call has ended. Rejects as the first call that did. */
  async untilNext(): Promise<void> {
    if (!this.#fault) await this.#next.promise;
    if (this.#fault) throw this.#fault.reason;
  }

  /** Resolves when all calls have ended. Rejects then as the first call that did. */
  async untilAll(): Promise<void> {
    while (!this.areOver) await this.#next.promise;
    if (this.#fault) throw this.#fault.reason;
  }

  #begin(): void {
    while (this.#running < MAX_CONCURRENT) {
      const call = this.#waiting.shift();
      if (!call) return;
      this.#running += 1;
      this.#run(call).then(
        () => this.#end(),
        (reason: unknown) => {
          this.#fault ??= { reason };
          this.#waiting = [];
          this.#end();
        },
      );
    }
  }

  #end(): void {
    this.#running -= 1;
    this.ended += 1;
    this.#begin();
    this.#next.resolve();
    this.#next = Promise.withResolvers();
  }
}
