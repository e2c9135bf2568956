import type { Item } from "@responses-edge/responses-api/items/registry";
import { Permits } from "../store/limits/permits.ts";
import type { RunReservation } from "../store/limits/run-quota.ts";
import type { UsedTurn } from "../store/limits/usage.ts";
import type { Admission } from "./limit-reservation.ts";
import type { Caller } from "./transport.ts";

/** The resources of a request that other requests wait for. */
interface Held<Used> {
  /** Memory permits of this isolate. */
  permits: Disposable & { resize(length: number): void };
  /** A reservation of its caller's limits, where they are counted. */
  admission?: Admission<Used>;
  /** Its conversation, which no other turn enters in the meantime. */
  conversation?: { release(): void };
}

/**
 * Owns all shared resources that a request takes, from when its body is read until it has ended. A function that opens
 * a scope declares it with `using`, so that any refusal gives everything back. Work that outlives the function takes
 * the resources over with `move`. Everything is given back once. `Used` is the use that the caller's limits count.
 */
export class RequestScope<Used = UsedTurn> implements Disposable {
  #held: Held<Used> | undefined;

  /** Opens the scope of a request whose body was read, and takes its memory permits. Throws the 503 and the 429 of `Permits`. */
  static open<Used = UsedTurn>(caller: Caller): RequestScope<Used> {
    const scope = new RequestScope<Used>();
    scope.#held = { permits: new Permits("turn", caller, caller.bodyLength) };
    return scope;
  }

  /** Takes the memory permits of `length` UTF-16 units instead, for body and history. Throws the 503 and the 429 of `Permits.resize`. */
  resize(length: number): void {
    this.#held?.permits.resize(length);
  }

  /** Owns the admission from now on. */
  admit(admission: Admission<Used>): void {
    if (this.#held) this.#held.admission = admission;
    else admission.end();
  }

  /** Owns the conversation that the turn has entered from now on. */
  enter(conversation: { release(): void }): void {
    if (this.#held) this.#held.conversation = conversation;
    else conversation.release();
  }

  /** The reservation that the home of a run ends. Undefined for other requests, and where nothing is counted. */
  get reservation(): RunReservation | undefined {
    return this.#held?.admission?.reservation;
  }

  /** Reserves the tokens that these items of the prompt add to the estimate. Rejects with the 429 of a limit that has fewer left. */
  async expect(items: () => readonly Item[]): Promise<void> {
    const expect = this.#held?.admission?.expect;
    if (expect) await expect(items());
  }

  /** Gives the memory permits back before the end. */
  releasePermits(): void {
    this.#held?.permits[Symbol.dispose]();
  }

  /** Gives everything back. The caller's limits count `used`; undefined counts nothing. Only the first call does anything. */
  end(used?: Used): void {
    const held = this.#held;
    this.#held = undefined;
    held?.permits[Symbol.dispose]();
    held?.admission?.end(used);
    held?.conversation?.release();
  }

  /** Moves everything into a new scope. This scope then releases nothing. */
  move(): RequestScope<Used> {
    const moved = new RequestScope<Used>();
    moved.#held = this.#held;
    this.#held = undefined;
    return moved;
  }

  [Symbol.dispose](): void {
    this.end();
  }
}
