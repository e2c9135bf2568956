import { DurableObject } from "cloudflare:workers";
import type { Env, RawEnv } from "../../env.ts";
import { withObjects } from "./objects.ts";
import { isAlone, keyOf, noteReleased, noteRung, whoRings } from "./ownership.ts";
import { nameOf, type ObjectBinding, type ObjectName } from "./registry.ts";

/** An object that a self-hosted process can hand over to another one while it is in use (`ownership.ts`). */

/** The method by which an object says that it has work besides calls. A symbol, so that no other process can call it. */
export const HAS_WORK = Symbol("has work");

/** Counts the beginning and the end of an answer's body. */
type Body = ReadableStream<Uint8Array>;

export abstract class OwnedObject extends DurableObject<Env> {
  /** Its name. */
  protected readonly named: ObjectName;
  readonly #key: string;
  /** Pending calls, alarms, and bodies that are being sent. */
  #underWay = 0;

  /** `binding`: the binding by which the Worker reaches objects of the class. */
  constructor(state: DurableObjectState, env: RawEnv, binding: ObjectBinding) {
    super(state, withObjects(env));
    this.named = nameOf(binding, state.id.name ?? "");
    this.#key = keyOf(binding, state.id.name ?? "");
    if (!env.OTHER) return;
    watch(new.target);
    noteLife(this.#key, this);
  }

  /** True if there is work besides calls. */
  [HAS_WORK](): boolean {
    return false;
  }

  get #isBusy(): boolean {
    return this.#underWay > 0 || this[HAS_WORK]();
  }

  /** Ends this instance of the object, and does not return; false if it has work. */
  async giveUp(): Promise<boolean> {
    if (this.#isBusy) return false;
    // All writes are on the disk, and the callers have their answers.
    await this.ctx.storage.sync();
    await scheduler.wait(1);
    return this.#isBusy ? false : this.#leave();
  }

  /** Makes the alarm ring in this process from now on: at the time that it had in the other process, or now. */
  async adopt(isNow: boolean): Promise<void> {
    const at = await this.ctx.storage.getAlarm();
    // The runtime ignores an alarm that is set to its present time.
    if (at !== null) await this.ctx.storage.setAlarm(isNow ? Date.now() : at - 1);
  }

  /** Counts work that has to end before the object is given up. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    try {
      return await work();
    } finally {
      this.#underWay -= 1;
    }
  }

  /** The same for a body, which is passed on as it comes. */
  counted(body: Body): Body {
    const { readable, writable } = new IdentityTransformStream();
    this.ctx.waitUntil(this.during(() => body.pipeTo(writable)).catch(() => {}));
    return readable;
  }

  /** Lets the alarm ring if the object is this process's. A predecessor gives the object up if it has no other work. */
  async mayRing(): Promise<void> {
    if (isAlone()) return;
    const ringing = await whoRings(this.#key, this.#isBusy);
    if (ringing === "here") return;
    if (ringing === "released") noteReleased(this.#key);
    else noteRung(this.#key);
    // The alarm did not run here. It rings at the other process.
    this.#leave();
  }

  #leave(): never {
    lives.delete(this.#key);
    return this.ctx.abort("The object was handed over.") as never;
  }
}

type Method = (this: OwnedObject, ...args: unknown[]) => unknown;

const watched = new WeakSet<object>();

/** Counts pending calls of a class's methods. */
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

/** The objects that live in this process, or have lived in it lately. */
const lives = new Map<string, WeakRef<object>>();

/** Ended instances are removed when there are this many. */
const LEAST_LOOKED_AT = 1_024;
let lookAt = LEAST_LOOKED_AT;

function noteLife(key: string, life: object): void {
  lives.set(key, new WeakRef(life));
  if (lives.size < lookAt) return;
  for (const [other, reference] of lives) if (reference.deref() === undefined) lives.delete(other);
  lookAt = Math.max(LEAST_LOOKED_AT, 2 * lives.size);
}

/** The keys of the objects that live in this process. */
export function livingObjects(): string[] {
  return [...lives].filter(([, life]) => life.deref() !== undefined).map(([key]) => key);
}
