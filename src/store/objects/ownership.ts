import { env } from "cloudflare:workers";
import { objectUnreachable } from "./process-state.ts";

/**
 * Decides which objects this process may run while a self-hosted process hands over to another (docs/self-hosting.md): the
 * two never run one object at the same time. The predecessor gives up every idle object, keeps the others until they
 * are idle, and then gives each of them up. Its successor opens only the files of objects that were given up.
 *
 * The launcher (`cli/reload/hand-over.ts`) tells both of each step. In every other process all objects are its own.
 */

/**
 * `waiting`: a successor that does not know yet which objects its predecessor keeps. `giving`: a predecessor that is
 * finding out which it keeps.
 */
type Phase = "alone" | "waiting" | "successor" | "giving" | "given" | "succeeded";

let phase: Phase = "IS_SUCCESSOR" in env ? "waiting" : "alone";

/** The objects that the predecessor still has, in both processes. */
let kept = new Set<string>();

/** Objects that are being given up at this moment. */
const leaving = new Set<string>();

/** Objects of the other process whose alarm has rung in this one. */
const rung = new Set<string>();

/** Objects that have been given up and not been reported yet. */
let released: string[] = [];

/** How often a waiting call checks whether the owner of its object is decided, and for how long. Milliseconds. */
const LOOK_MS = 5;
const MAX_WAIT_MS = 60_000;

/** The name of an object in both processes. */
export function keyOf(binding: string, name: string): string {
  return `${binding}:${name}`;
}

export function isAlone(): boolean {
  return phase === "alone";
}

/** True of a predecessor whose successor serves. */
export function isSucceeded(): boolean {
  return phase === "succeeded";
}

/** Tells where the alarm of an object is to ring. An object of a predecessor is `released` if it has no other work. */
export async function whoRings(key: string, isBusy: boolean): Promise<"here" | "there" | "released"> {
  if (phase === "giving" || hasGiven()) {
    const mayBeKept = phase === "giving" || kept.has(key);
    if (mayBeKept && isBusy) return "here";
    return kept.has(key) ? "released" : "there";
  }
  return ownerOf(key);
}

/** True of a predecessor. */
export function hasGiven(): boolean {
  return phase === "given" || phase === "succeeded";
}

/** Tells the successor which objects its predecessor keeps: all others are its own. */
export function succeed(keeps: readonly string[]): void {
  kept = new Set(keeps);
  phase = "successor";
}

/** Notes that the predecessor has ended. Gives the objects that it kept until then. */
export function forgetPredecessor(): string[] {
  const left = [...kept];
  kept.clear();
  phase = "alone";
  return left;
}

/** Notes that the predecessor begins to give up its objects. */
export function beginGiving(): void {
  phase = "giving";
}

/** Notes that the predecessor has given up all objects but these. */
export function endGiving(keeps: readonly string[]): void {
  kept = new Set(keeps);
  phase = "given";
}

/** Notes that the successor serves: calls of the other objects are passed on to it. */
export function noteSuccessor(): void {
  phase = "succeeded";
}

/** Until when passed-on answers are held back. Unix milliseconds. */
let heldUntil = 0;

/** Holds answers back for a while from now on. */
export function holdAnswers(ms: number): void {
  heldUntil = Date.now() + ms;
}

/** Waits while answers are held back. */
export async function untilReleased(): Promise<void> {
  const left = heldUntil - Date.now();
  if (left > 0) await scheduler.wait(left);
}

/** Takes everything back, because the successor did not start. */
export function takeBack(): void {
  kept.clear();
  phase = "alone";
}

export function keptObjects(): readonly string[] {
  return [...kept];
}

/** How many calls are on their way to an object, or under way in it. */
const calls = new Map<string, number>();

/** Makes a call of an object, which is not given up meanwhile. */
export async function calling<T>(key: string, call: () => T): Promise<Awaited<T>> {
  calls.set(key, (calls.get(key) ?? 0) + 1);
  try {
    return await call();
  } finally {
    const left = (calls.get(key) ?? 0) - 1;
    if (left > 0) calls.set(key, left);
    else calls.delete(key);
  }
}

/** Gives an object up by `giveUp`, which tells whether it has left. Calls of the object wait until then. Does nothing while it is called. */
export async function release(key: string, giveUp: () => Promise<boolean>): Promise<void> {
  if (calls.has(key)) return;
  leaving.add(key);
  try {
    if (await giveUp()) noteReleased(key);
  } finally {
    leaving.delete(key);
  }
}

/** Notes that an object has been given up. */
export function noteReleased(key: string): void {
  if (kept.delete(key)) released.push(key);
}

/** Gives the names of the objects that were given up since the last call. */
export function takeReleased(): string[] {
  const taken = released;
  released = [];
  return taken;
}

export function noteRung(key: string): void {
  rung.add(key);
}

/**
 * The objects of the other process whose alarms have rung in this one. They are kept because the runtime may forget an
 * alarm that fails repeatedly.
 */
export function rungObjects(): readonly string[] {
  return [...rung];
}

/**
 * Makes a call of the other process's if the object is this process's, and gives its answer; undefined if it is not. A predecessor asks its
 * successor about objects that it has given up, even before the successor was told of them.
 */
export async function callingOurs<T>(key: string, call: () => Promise<T>): Promise<{ value: T } | undefined> {
  if (!hasGiven()) {
    await ownerOf(key);
    kept.delete(key);
    return { value: await call() };
  }
  while (leaving.has(key)) await scheduler.wait(LOOK_MS);
  return kept.has(key) ? { value: (await calling(key, call)) as T } : undefined;
}

/** Waits for the decision and gives the owner of an object. Throws the 503 of an unreachable object if it is not decided in time. */
export async function ownerOf(key: string): Promise<"here" | "there"> {
  for (const deadline = Date.now() + MAX_WAIT_MS; ; await scheduler.wait(LOOK_MS)) {
    if (!leaving.has(key)) {
      if (phase === "alone") return "here";
      if (phase === "successor") return kept.has(key) ? "there" : "here";
      if (hasGiven() && kept.has(key)) return "here";
      if (phase === "succeeded") return "there";
    }
    if (Date.now() > deadline) throw objectUnreachable();
  }
}
