import { WorkerEntrypoint } from "cloudflare:workers";
import { answerCall, answerFetch, askHere, objectsOf, type RawBindings } from "./objects.ts";
import { homeLeft } from "./open-homes.ts";
import { livingObjects } from "./owned-object.ts";
import {
  beginGiving,
  callingOurs,
  endGiving,
  forgetPredecessor,
  keptObjects,
  keyOf,
  noteReleased,
  release,
} from "./ownership.ts";
import { textOf } from "./registry.ts";
import type { Answer, ObjectCall } from "./rpc.ts";

/**
 * The steps by which a self-hosted process hands its objects over (`ownership.ts`), and the calls that the other
 * process may make of them.
 */

/** Objects that are asked concurrently. */
const ASKED_TOGETHER = 64;

/** The objects as the other process reaches them, on a socket of its own. */
export class Objects extends WorkerEntrypoint<RawBindings> {
  call(call: ObjectCall): Promise<Answer> {
    return answerCall(call, (asked) => this.#ask(asked));
  }

  override fetch(request: Request): Promise<Response> {
    return answerFetch(request, (asked) => this.#ask(asked));
  }

  #ask(call: ObjectCall) {
    return callingOurs(keyOf(call.object.binding, textOf(call.object)), () => askHere(this.env, call));
  }
}

/** Gives up every idle object of this process. Gives the others, with the names of their files. */
export async function giveUpObjects(env: RawBindings): Promise<{ key: string; file: string }[]> {
  beginGiving();
  const keeps: { key: string; file: string }[] = [];
  await ofEach(livingObjects(), async (key) => {
    if (await giveUp(env, key)) return;
    const [object] = objectsOf([key]);
    if (object) keeps.push({ key, file: env[object.binding].idFromName(textOf(object)).toString() });
  });
  endGiving(keeps.map(({ key }) => key));
  return keeps;
}

/** Gives up those of the kept objects that have become idle. */
export async function releaseObjects(env: RawBindings): Promise<void> {
  await ofEach(keptObjects(), (key) => release(key, () => giveUp(env, key)));
}

/** Takes over objects that the predecessor has given up: their alarms ring here from now on. */
export async function adoptObjects(env: RawBindings, keys: readonly string[]): Promise<void> {
  for (const key of keys) noteReleased(key);
  await ofEach(keys, (key) => adopt(env, key, false));
}

/** Takes over the rest, because the predecessor has ended: the objects that it had until then, and its alarms that rang here. */
export async function adoptRest(env: RawBindings, rung: readonly string[]): Promise<void> {
  const left = forgetPredecessor();
  await ofEach(left, (key) => adopt(env, key, true));
  await ofEach(rung, (key) => adopt(env, key, false));
}

async function giveUp(env: RawBindings, key: string): Promise<boolean> {
  const [object] = objectsOf([key]);
  if (!object) return true;
  const name = textOf(object);
  const stub = env[object.binding].getByName(name) as unknown as { giveUp(): Promise<boolean> };
  // The object's instance has ended, and the call with it.
  const hasLeft = await stub.giveUp().catch(() => true);
  if (hasLeft && object.binding === "HOME") homeLeft(name);
  return hasLeft;
}

async function adopt(env: RawBindings, key: string, isNow: boolean): Promise<void> {
  const [object] = objectsOf([key]);
  if (!object) return;
  // An object that cannot be opened has no alarm either.
  await askHere(env, { object, method: "adopt", args: [isNow] }).catch(() => {});
}

async function ofEach<T>(all: readonly T[], work: (each: T) => Promise<void>): Promise<void> {
  const left = all.values();
  const worker = async () => {
    for (const each of left) await work(each);
  };
  await Promise.all(Array.from({ length: ASKED_TOGETHER }, worker));
}
