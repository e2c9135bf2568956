import { DurableObject } from "cloudflare:workers";
import type { ObjectBinding, OtherProcess } from "./object-routes.ts";
import { routed } from "./object-routes.ts";
import { isAlone, keyOf, noteReleased, noteRung, whoRings } from "./ownership.ts";

/** An object that a process of one's own can hand over to another one while it is asked (`ownership.ts`). */

/** Where an object tells that something is under way in it besides calls; no other process may call it. */
export const HAS_WORK = Symbol("has work");

/** Gives an answer's body a beginning and an end that are told. */
type Body = ReadableStream<Uint8Array>;

export abstract class OwnedObject<Bindings extends object> extends DurableObject<Bindings & OtherProcess> {
  readonly #key: string;
  /** Calls that wait for something, alarms, and bodies that are on their way. */
  #underWay = 0;

  /** `binding`: by which the Worker reaches objects of the class. */
  constructor(state: DurableObjectState, env: Bindings & OtherProcess, binding: ObjectBinding) {
    super(state, routed(env));
    this.#key = keyOf(binding, state.id.name ?? "");
    if (!env.OTHER) return;
    watch(new.target);
    noteLife(this.#key, this);
  }

  /** Something is under way besides calls. */
  [HAS_WORK](): boolean {
    return false;
  }

  get #isBusy(): boolean {
    return this.#underWay > 0 || this[HAS_WORK]();
  }

  /** Ends this life of the object, and does not come back; false where something is under way in it. */
  async giveUp(): Promise<boolean> {
    if (this.#isBusy) return false;
    // All writes are on the disk, and the callers have their answers.
    await this.ctx.storage.sync();
    await scheduler.wait(1);
    return this.#isBusy ? false : this.#leave();
  }

  /** Has the alarm ring in this process from now on: when it was to ring in the other one, or `now`. */
  async adopt(isNow: boolean): Promise<void> {
    const at = await this.ctx.storage.getAlarm();
    // The runtime does nothing about an alarm that is set to the time that it has.
    if (at !== null) await this.ctx.storage.setAlarm(isNow ? Date.now() : at - 1);
  }

  /** Does something that has to end before the object is given up. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    try {
      return await work();
    } finally {
      this.#underWay -= 1;
    }
  }

  /** The same for a body, which is handed on as it comes. */
  counted(body: Body): Body {
    const { readable, writable } = new IdentityTransformStream();
    this.ctx.waitUntil(this.during(() => body.pipeTo(writable)).catch(() => {}));
    return readable;
  }

  /** The alarm rings: lets it where the object is this process's. A predecessor gives the object up if nothing else is under way. */
  async mayRing(): Promise<void> {
    if (isAlone()) return;
    const ringing = await whoRings(this.#key, this.#isBusy);
    if (ringing === "here") return;
    if (ringing === "released") noteReleased(this.#key);
    else noteRung(this.#key);
    // The alarm is not done: it rings at the other process.
    this.#leave();
  }

  #leave(): never {
    lives.delete(this.#key);
    return this.ctx.abort("The object was handed over.") as never;
  }
}

type Method = (this: OwnedObject<object>, ...args: unknown[]) => unknown;

const watched = new WeakSet<object>();

/** Counts the calls of a class's methods that wait for something. */
function watch({ prototype }: { prototype: object }): void {
  if (watched.has(prototype)) return;
  watched.add(prototype);
  for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
    if (typeof value !== "function" || name === "constructor") continue;
    const method = value as Method;
    Object.defineProperty(prototype, name, { value: name === "alarm" ? ringing(method) : counting(method) });
  }
}

function counting(method: Method): Method {
  return function (...args) {
    const answer = method.apply(this, args);
    return answer instanceof Promise ? this.during(() => answer) : answer;
  };
}

function ringing(method: Method): Method {
  return async function (...args) {
    await this.mayRing();
    return this.during(async () => method.apply(this, args));
  };
}

/** The objects that live in this process, or have lived in it of late. */
const lives = new Map<string, WeakRef<object>>();

/** The ends of lives are looked for when there are so many. */
const LEAST_LOOKED_AT = 1_024;
let lookAt = LEAST_LOOKED_AT;

function noteLife(key: string, life: object): void {
  lives.set(key, new WeakRef(life));
  if (lives.size < lookAt) return;
  for (const [other, reference] of lives) if (reference.deref() === undefined) lives.delete(other);
  lookAt = Math.max(LEAST_LOOKED_AT, 2 * lives.size);
}

/** Which objects live in this process. */
export function livingObjects(): string[] {
  return [...lives].filter(([, life]) => life.deref() !== undefined).map(([key]) => key);
}
