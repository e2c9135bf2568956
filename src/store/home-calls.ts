import { waitUntil } from "cloudflare:workers";
import { ApiError } from "../protocol/errors.ts";
import type { Home } from "./home.ts";
import {
  beginCall,
  type FileBindings,
  hasFile,
  homeLeft,
  isOpen,
  mostOpenHomes,
  type OpenHome,
  openHomes,
} from "./open-homes.ts";

/** How long a call waits for another home to leave, and how often it looks. */
const MAX_WAIT_MS = 2_000;
const LOOK_MS = 10;

export type HomesBinding = FileBindings & { HOME: DurableObjectNamespace<Home> };

/** What a method gives its callers. */
type Called<Method> = Method extends (...args: infer Args) => infer Answer
  ? (...args: Args) => Promise<Awaited<Answer>>
  : never;

/** A home as its callers see it. (The type of a stub gives an answer that is a union as a union of promises.) */
export type HomeStub = { [Name in Exclude<keyof Home, "fetch">]: Called<Home[Name]> } & Pick<Fetcher, "fetch">;

/** Calls of homes, by the names of their objects. */
export class HomeCalls {
  readonly #homes: DurableObjectNamespace<Home>;
  readonly #files: Fetcher | undefined;
  readonly #bindings: FileBindings;

  constructor(bindings: HomesBinding) {
    this.#homes = bindings.HOME;
    this.#files = bindings.HOME_FILES;
    this.#bindings = bindings;
  }

  /** Whether a home may keep something: false where it has no file. */
  async mayExist(name: string): Promise<boolean> {
    return !this.#files || isOpen(name) || (await hasFile(this.#files, this.#homes.idFromName(name)));
  }

  /**
   * Calls a home, which is opened where it is not. The call ends when its answer is there, or the last byte of its answer's body.
   * One that keeps nothing after its last call has no file when that has ended.
   * Throws the 503 of a process that has as many homes open as it may, where none of them leaves in `MAX_WAIT_MS`.
   */
  async call<T>(name: string, work: (home: HomeStub) => Promise<T>): Promise<T> {
    if (this.#bindings.OPEN_FILES === undefined) return work(this.#stub(name));
    const home = await this.#enter(name);
    const answered = this.#answer(name, home, work);
    // The platform drops what a request waits for when its client leaves: the call would never end.
    waitUntil(answered.catch(() => {}));
    return answered;
  }

  async #answer<T>(name: string, home: OpenHome, work: (home: HomeStub) => Promise<T>): Promise<T> {
    let delivery: Promise<void> | undefined;
    try {
      const answer = await work(this.#stub(name));
      if (!(answer instanceof Response && answer.body)) return answer;
      // A home that left while its bytes are on their way would break them off.
      const { readable, writable } = new IdentityTransformStream();
      delivery = answer.body.pipeTo(writable);
      return new Response(readable, answer) as T;
    } finally {
      if (delivery) waitUntil(delivery.catch(() => {}).then(() => this.#ended(name, home)));
      else await this.#ended(name, home);
    }
  }

  async #ended(name: string, home: OpenHome): Promise<void> {
    home.calls -= 1;
    home.usedAt = Date.now();
    if (this.#files && home.calls === 0 && home.life?.deref()?.mayBeVacant) await this.#leave(name, home, true);
  }

  #stub(name: string): HomeStub {
    return this.#homes.getByName(name) as unknown as HomeStub;
  }

  /** Begins a call. Waits while the home leaves and, where it is not open, until another has closed. */
  async #enter(name: string): Promise<OpenHome> {
    for (const deadline = Date.now() + MAX_WAIT_MS; ; ) {
      const home = beginCall(
        name,
        openHomes().has(name) ? Number.POSITIVE_INFINITY : await mostOpenHomes(this.#bindings),
      );
      if (home) return home;
      if (!openHomes().has(name) && (await this.#closeAnother())) continue;
      if (Date.now() > deadline) throw tooManyOpen();
      await scheduler.wait(LOOK_MS);
    }
  }

  /** Has the least recently used home leave in which nothing is under way. False where there is none. */
  async #closeAnother(): Promise<boolean> {
    for (const [name, home] of openHomes()) {
      if (home.calls > 0 || home.isLeaving) continue;
      const life = home.life?.deref();
      if (life && !life.isIdle) continue;
      if (!life) homeLeft(name);
      else if (!(await this.#leave(name, home, false))) continue;
      return true;
    }
    return false;
  }

  /** Has a home leave, or stay where it may not. Whether it has left. */
  async #leave(name: string, home: OpenHome, onlyIfVacant: boolean): Promise<boolean> {
    home.isLeaving = true;
    const hasLeft = await this.#stub(name)
      .leave(onlyIfVacant)
      // Its life has ended, and the call with it.
      .catch(() => true);
    home.isLeaving = false;
    if (hasLeft) homeLeft(name);
    return hasLeft;
  }
}

function tooManyOpen(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server has as many conversations open as it may. Please retry in a few seconds.",
    code: "server_is_overloaded",
    headers: { "retry-after": "2" },
  });
}
