import { DurableObject } from "cloudflare:workers";
import type { Env, RawEnv } from "../../env.ts";
import { setAlarm } from "./alarms.ts";
import type { Deaths } from "./deaths.ts";
import { withObjects } from "./objects.ts";
import { hasPlace, type LivingObject, objectLeft, objectOpened } from "./open-objects.ts";
import { counted, hasHandedOver, isClosing, mayRing } from "./ownership.ts";
import { keyOf, nameOf, type ObjectBinding, type ObjectName } from "./registry.ts";
import { IS_SERVED } from "./workers.ts";

/** An object that a self-hosted process can pass to another one while it is in use (`hand-over.ts`). */

/** How long an alarm waits, at least, if as many objects are open as may be, and all have work. Milliseconds. */
const CROWDED_MS = 2_000;

/** How often an alarm is postponed so. Others may keep all objects at work for any time. */
const MAX_POSTPONED = 3;

/** How often the alarms of objects were postponed, by their classes and names. */
const postponed = new Map<string, number>();

const HANDED_OVER = "The object was handed over.";

/** The part of an object that the next process needs beside its storage. It is only in the memory of the processes. */
export interface Carried {
  object: ObjectName;
  state: unknown;
}

type Body = ReadableStream<Uint8Array>;

export abstract class OwnedObject extends DurableObject<Env> implements LivingObject {
  /** Alarms and other work that is no call. */
  #underWay = 0;
  readonly #namespaces: RawEnv;
  /** Its name. */
  protected readonly named: ObjectName;
  /** Counts the deaths in the middle of the alarm's work, if that has pieces which may cause them. */
  protected deaths: Deaths | undefined;

  /**
   * `binding`: the binding by which the Worker reaches objects of the class. Throws in a process that has handed its objects over:
   * its alarms still ring, and also in the next process, which has read them at its start. The runtime opens the object's
   * file for an alarm, closes it when the constructor has failed, and tries again later, however often that happens.
   */
  constructor(state: DurableObjectState, env: RawEnv, binding: ObjectBinding) {
    super(state, withObjects(env, "object"));
    if (hasHandedOver()) throw new Error(HANDED_OVER);
    this.#namespaces = env;
    this.named = nameOf(binding, state.id.name ?? "");
    if (IS_SERVED) noteLife(this, this.named);
    if (env.OPEN_FILES !== undefined) objectOpened(keyOf(this.named), this.named, this);
  }

  /** Keeps the object alive until a promise has settled. */
  protected waitUntil(promise: Promise<unknown>): void {
    this.#underWay += 1;
    this.ctx.waitUntil(promise.finally(() => (this.#underWay -= 1)));
  }

  /** Tells whether the object has no work but calls: the file of another object may need its place. */
  get isIdle(): boolean {
    return this.#underWay === 0;
  }

  /** Tells whether the object, as far as it knows without reading, stores nothing. */
  get mayBeVacant(): boolean {
    return false;
  }

  /**
   * Ends this instance, so that its files are closed; the call does not return then. Gives false if it has work. To be called while
   * nobody else calls the object.
   */
  async leave(_onlyIfVacant: boolean): Promise<boolean> {
    if (this.isIdle) await this.ctx.storage.sync();
    return this.isIdle && (this.ctx.abort("It has left.") as never);
  }

  /** Resolves when the work of this object can be cut off and resumed, or after `ms`. */
  async suspend(_ms: number): Promise<void> {
    this.deaths?.end();
  }

  /** Gives what the next process needs beside the storage (`takeOver`); undefined if that is nothing. */
  protected async carried(): Promise<unknown> {
    return undefined;
  }

  /** Takes what the object's instance in another process has carried. To be called before any other call. */
  async takeOver(_carried: unknown): Promise<void> {}

  /** Ends this instance, and does not return. */
  async close(): Promise<void> {
    const state = await this.carried();
    if (state !== undefined) carriedByAll.push({ object: this.named, state });
    await this.ctx.storage.sync();
    this.ctx.abort(HANDED_OVER);
  }

  /** Ends this instance, and does not return: the next call opens the object's file again. */
  async reopen(): Promise<void> {
    this.ctx.abort("Its file is opened again.");
  }

  /** Says whether the object has sockets with which it may hibernate: then it must be closed although nothing of it is in memory. */
  protected setHibernating(may: boolean): void {
    const life = lives.get(keyOf(this.named));
    if (life) life.mayHibernate = may;
  }

  /** The work of the alarm. */
  protected async ring(): Promise<void> {}

  /** Runs the alarm once the object is here. */
  override async alarm(): Promise<void> {
    // It rings again in 2 s. The object's file must be closed before the next process starts, and what is in memory is carried.
    if (isClosing()) return this.close();
    if (!(await mayRing())) this.ctx.abort(HANDED_OVER);
    this.#underWay += 1;
    try {
      const key = keyOf(this.named);
      const waits = postponed.get(key) ?? 0;
      if (waits >= MAX_POSTPONED || (await hasPlace(this.#namespaces))) {
        postponed.delete(key);
        await this.ring();
      } else {
        postponed.set(key, waits + 1);
        await setAlarm(this.ctx.storage, Date.now() + CROWDED_MS * (1 + Math.random()));
      }
    } finally {
      this.#underWay -= 1;
    }
    await this.rung();
  }

  /** Follows the work of the alarm, when the object may be idle again. */
  protected async rung(): Promise<void> {}

  /** A body that is sent, if possible, before the object is closed. */
  protected counted(body: Body): Body {
    const { readable, writable } = new IdentityTransformStream();
    this.ctx.waitUntil(counted(() => body.pipeTo(writable)).catch(() => {}));
    return readable;
  }
}

/** An object that lives in this process, hibernates in it, or has lived in it lately. */
interface Life {
  object: ObjectName;
  instance: WeakRef<OwnedObject>;
  mayHibernate: boolean;
}

const lives = new Map<string, Life>();

const isLiving = ({ instance, mayHibernate }: Life) => mayHibernate || instance.deref() !== undefined;

/** Ended instances are removed when there are this many. */
const LEAST_LOOKED_AT = 1_024;
let lookAt = LEAST_LOOKED_AT;

function noteLife(instance: OwnedObject, object: ObjectName): void {
  const key = keyOf(object);
  lives.set(key, { object, instance: new WeakRef(instance), mayHibernate: lives.get(key)?.mayHibernate ?? false });
  if (lives.size < lookAt) return;
  for (const [other, life] of lives) if (!isLiving(life)) lives.delete(other);
  lookAt = Math.max(LEAST_LOOKED_AT, 2 * lives.size);
}

/** Notes that an object's instance has ended. */
export function forgetLife(object: ObjectName): void {
  lives.delete(keyOf(object));
  objectLeft(keyOf(object));
}

/** The objects that live or hibernate in this process. */
export function livingObjects(): ObjectName[] {
  return [...lives.values()].filter(isLiving).map(({ object }) => object);
}

let carriedByAll: Carried[] = [];

/** Gives everything that closed objects have carried since the last call. */
export function takeCarried(): Carried[] {
  const taken = carriedByAll;
  carriedByAll = [];
  return taken;
}
