import { waitUntil } from "cloudflare:workers";
import { ApiError } from "@responses-edge/responses-api/errors";
import { elsewhere, homeFilesOf, workerName } from "../objects/workers.ts";
import type { Home } from "./home.ts";
import {
  beginCall,
  type FileBindings,
  hasFile,
  homeLeft,
  isOpen,
  MANY_HOMES,
  mostOpenHomes,
  type OpenHome,
  openHomes,
} from "./open-homes.ts";

/** How long a call waits for another home to close, and how often it checks. */
const MAX_WAIT_MS = 2_000;
const LOOK_MS = 10;

export type HomesBinding = FileBindings & { HOME: DurableObjectNamespace<Home> };

/** A method as its callers see it. */
type Called<Method> = Method extends (...args: infer Args) => infer Answer
  ? (...args: Args) => Promise<Awaited<Answer>>
  : never;

/** A home as its callers see it. (A stub's own type turns an answer that is a union into a union of promises.) */
export type HomeStub = { [Name in Exclude<keyof Home, "fetch">]: Called<Home[Name]> } & Pick<Fetcher, "fetch">;

type HomeStubs = { getByName(name: string): HomeStub } & Pick<DurableObjectNamespace, "idFromName">;

/** Calls of a tenant's homes. An object's name is tenant + home, so that no other tenant's can be reached. */
export class HomeCalls {
  protected readonly tenant: string;
  readonly #homes: HomeStubs;
  readonly #bindings: FileBindings;

  constructor(bindings: HomesBinding, tenant: string) {
    this.tenant = tenant;
    this.#homes = bindings.HOME as unknown as HomeStubs;
    this.#bindings = bindings;
  }

  /** Asks a home for something that it stores. Gives `absent` if it has no file, without opening it. Throws as `open`. */
  async ask<T, Absent>(home: string, absent: Absent, work: (home: HomeStub) => Promise<T>): Promise<T | Absent> {
    const { HOME_FILES: files } = this.#bindings;
    const name = `${this.tenant}:${home}`;
    const mayExist = !files || isOpen(name) || (await this.#hasFile(name, files));
    return mayExist ? this.open(home, work) : absent;
  }

  /** True of a home in the share of another worker. */
  protected isElsewhere(home: string): boolean {
    return elsewhere(this.#homes, `${this.tenant}:${home}`) !== undefined;
  }

  #hasFile(name: string, files: Fetcher): Promise<boolean> {
    return hasFile(homeFilesOf(elsewhere(this.#homes, name), files), this.#homes.idFromName(name));
  }

  /**
   * Calls a home, which is created if it does not exist. The call ends when its answer is there, or the last byte of
   * its answer's body. A home that stores nothing after its last call loses its file. Throws the 503 of a process that
   * has as many homes open as it may, if none closes within `MAX_WAIT_MS`.
   */
  async open<T>(key: string, work: (home: HomeStub) => Promise<T>): Promise<T> {
    const name = `${this.tenant}:${key}`;
    // A home in the share of another worker is counted there.
    const isElsewhere = workerName !== undefined && this.isElsewhere(key);
    if (isElsewhere || this.#bindings.OPEN_FILES === undefined) return work(this.#homes.getByName(name));
    const answered = this.#answer(name, beginCall(name, 0) ?? (await this.#enter(name)), work);
    // The platform drops the promises of a request when its client leaves: the call would never end.
    waitUntil(answered.catch(() => {}));
    return answered;
  }

  async #answer<T>(name: string, home: OpenHome, work: (home: HomeStub) => Promise<T>): Promise<T> {
    let delivery: Promise<void> | undefined;
    try {
      const answer = await work(this.#homes.getByName(name));
      if (!(answer instanceof Response && answer.body)) return answer;
      // If the home closed while its bytes are being sent, they would break off.
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
    const mayLeave = this.#bindings.HOME_FILES && home.calls === 0;
    if (mayLeave && home.life?.deref()?.mayBeVacant) await this.#leave(name, home, true);
  }

  /** Begins a call of a home that is not open, or is closing: waits for its end and, if necessary, until another home has closed. */
  async #enter(name: string): Promise<OpenHome> {
    for (const deadline = Date.now() + MAX_WAIT_MS; ; ) {
      const home = beginCall(
        name,
        openHomes().has(name) ? Number.POSITIVE_INFINITY : await mostOpenHomes(this.#bindings),
      );
      if (home) {
        if (openHomes().size > MANY_HOMES) waitUntil(this.#closeAnother());
        return home;
      }
      if (!openHomes().has(name) && (await this.#closeAnother())) continue;
      if (Date.now() > deadline) throw tooManyOpen();
      await scheduler.wait(LOOK_MS);
    }
  }

  /** Closes the least recently used idle home. False if there is none. */
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

  /** Closes a home, unless it must stay. Tells whether it has closed. */
  async #leave(name: string, home: OpenHome, onlyIfVacant: boolean): Promise<boolean> {
    home.isLeaving = true;
    const hasLeft = await this.#homes
      .getByName(name)
      .leave(onlyIfVacant)
      // The object's instance has ended, and the call with it.
      .catch(() => true);
    home.isLeaving = false;
    if (hasLeft) homeLeft(name);
    return hasLeft;
  }
}

function tooManyOpen(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server has the maximum number of conversations open. Please retry in a few seconds.",
    code: "server_is_overloaded",
    headers: { "retry-after": "2" },
  });
}
