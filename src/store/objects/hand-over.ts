import { WorkerEntrypoint } from "cloudflare:workers";
import { HomeCalls, type HomeStub, type HomesBinding } from "../home/home-calls.ts";
import { homeLeft } from "../home/open-homes.ts";
import { type Answer, MOVED, type ObjectBinding, type ObjectCall, objectOf, partsOf } from "./object-routes.ts";
import { livingObjects, type OwnedObject } from "./owned-object.ts";
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

/**
 * The steps by which a self-hosted process hands its objects over (`ownership.ts`), and the calls that the other
 * process may make of them.
 */

type Env = HomesBinding & Record<ObjectBinding, unknown>;
type Namespace = DurableObjectNamespace<OwnedObject<object>>;
type Method = (...args: unknown[]) => Promise<unknown>;

/** Objects that are asked concurrently. */
const ASKED_TOGETHER = 64;

/** The objects as the other process reaches them, on a socket of its own. */
export class Objects extends WorkerEntrypoint<Env> {
  async call({ binding, name, method, args }: ObjectCall): Promise<Answer> {
    const call = () => askObject(this.env, binding, name, (stub) => (stub[method] as Method)(...args));
    return (await callingOurs(keyOf(binding, name), call)) ?? {};
  }

  override async fetch(request: Request): Promise<Response> {
    const [binding, name] = objectOf(request);
    if (!binding) return new Response(null, { status: 404 });
    const call = () => askObject(this.env, binding, name, (stub) => (stub as unknown as Fetcher).fetch(request));
    const answer = await callingOurs(keyOf(binding, name), call);
    return answer?.value ?? new Response(null, { status: MOVED });
  }
}

/** Asks an object of this process. Open homes are counted. */
export function askObject<T>(
  env: Env,
  binding: ObjectBinding,
  name: string,
  work: (stub: Record<string, unknown>) => Promise<T>,
): Promise<T> {
  if (binding !== "HOME")
    return work((env[binding] as Namespace).getByName(name) as unknown as Record<string, unknown>);
  const [tenant = "", home = ""] = name.split(":");
  return new HomeCalls(env, tenant).open(home, (stub: HomeStub) => work(stub as unknown as Record<string, unknown>));
}

/** Gives up every idle object of this process. Gives the others, with the names of their files. */
export async function giveUpObjects(env: Env): Promise<{ key: string; file: string }[]> {
  beginGiving();
  const keeps: { key: string; file: string }[] = [];
  await ofEach(livingObjects(), async (key) => {
    if (await giveUp(env, key)) return;
    const [binding, name] = partsOf(key);
    if (binding) keeps.push({ key, file: (env[binding] as Namespace).idFromName(name).toString() });
  });
  endGiving(keeps.map(({ key }) => key));
  return keeps;
}

/** Gives up those of the kept objects that have become idle. */
export async function releaseObjects(env: Env): Promise<void> {
  await ofEach(keptObjects(), (key) => release(key, () => giveUp(env, key)));
}

/** Takes over objects that the predecessor has given up: their alarms ring here from now on. */
export async function adoptObjects(env: Env, keys: readonly string[]): Promise<void> {
  for (const key of keys) noteReleased(key);
  await ofEach(keys, (key) => adopt(env, key, false));
}

/** Takes over the rest, because the predecessor has ended: the objects that it had until then, and its alarms that rang here. */
export async function adoptRest(env: Env, rung: readonly string[]): Promise<void> {
  const left = forgetPredecessor();
  await ofEach(left, (key) => adopt(env, key, true));
  await ofEach(rung, (key) => adopt(env, key, false));
}

async function giveUp(env: Env, key: string): Promise<boolean> {
  const [binding, name] = partsOf(key);
  if (!binding) return true;
  const hasLeft = await (env[binding] as Namespace)
    .getByName(name)
    .giveUp()
    // The object's instance has ended, and the call with it.
    .catch(() => true);
  if (hasLeft && binding === "HOME") homeLeft(name);
  return hasLeft;
}

async function adopt(env: Env, key: string, isNow: boolean): Promise<void> {
  const [binding, name] = partsOf(key);
  if (!binding) return;
  // An object that cannot be opened has no alarm either.
  await askObject(env, binding, name, (stub) => (stub.adopt as Method)(isNow)).catch(() => {});
}

async function ofEach<T>(all: readonly T[], work: (each: T) => Promise<void>): Promise<void> {
  const left = all.values();
  const worker = async () => {
    for (const each of left) await work(each);
  };
  await Promise.all(Array.from({ length: ASKED_TOGETHER }, worker));
}
