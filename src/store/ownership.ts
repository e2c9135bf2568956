import { env } from "cloudflare:workers";
import { ApiError } from "@responses-edge/responses-api/errors";

/**
 * Which objects this process may run, while one process of one's own hands over to another (docs/upgrades.md): two of them never run one
 * object at a time. The predecessor gives up every object in which nothing is under way, keeps the others until that is so, and then gives
 * each of them up. Its successor opens the files of what was given up alone.
 *
 * The launcher (`cli/hand-over.ts`) tells both of each step. In every other process all objects are this one's.
 */

/** `waiting`: a successor that does not know yet what its predecessor keeps. `giving`: a predecessor that is finding out what it keeps. */
type Phase = "alone" | "waiting" | "successor" | "giving" | "given" | "succeeded";

let phase: Phase = "IS_SUCCESSOR" in env ? "waiting" : "alone";

/** The objects that the predecessor still has, in both processes. */
let kept = new Set<string>();

/** Objects that are being given up just now. */
const leaving = new Set<string>();

/** Objects of the other process whose alarm has rung in this one. */
const rung = new Set<string>();

/** Which objects have been given up and not been told of. */
let released: string[] = [];

/** How often it is looked whether it is decided whose an object is, and for how long. Milliseconds. */
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

/** Tells where the alarm of an object is to ring. An object of a predecessor is `released` if nothing else is under way in it. */
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

/** The successor is told what its predecessor keeps: all else is its own. */
export function succeed(keeps: readonly string[]): void {
  kept = new Set(keeps);
  phase = "successor";
}

/** The predecessor has ended. Gives what it has kept until then. */
export function forgetPredecessor(): string[] {
  const left = [...kept];
  kept.clear();
  phase = "alone";
  return left;
}

/** The predecessor begins to give up its objects. */
export function beginGiving(): void {
  phase = "giving";
}

/** The predecessor has given up all objects but these. */
export function endGiving(keeps: readonly string[]): void {
  kept = new Set(keeps);
  phase = "given";
}

/** The successor serves, and the rest is passed on to it. */
export function noteSuccessor(): void {
  phase = "succeeded";
}

/** Until when answers that are passed on are kept back. Unix milliseconds. */
let heldUntil = 0;

/** Keeps answers back for a while from now on. */
export function holdAnswers(ms: number): void {
  heldUntil = Date.now() + ms;
}

/** Waits for as long as answers are kept back. */
export async function untilReleased(): Promise<void> {
  const left = heldUntil - Date.now();
  if (left > 0) await scheduler.wait(left);
}

/** The successor did not come: everything is this process's again. */
export function takeBack(): void {
  kept.clear();
  phase = "alone";
}

export function keptObjects(): readonly string[] {
  return [...kept];
}

/** Gives an object up by `giveUp`, which tells whether it has left. Calls of the object meanwhile wait. */
export async function release(key: string, giveUp: () => Promise<boolean>): Promise<void> {
  leaving.add(key);
  try {
    if (await giveUp()) noteReleased(key);
  } finally {
    leaving.delete(key);
  }
}

/** An object has been given up. */
export function noteReleased(key: string): void {
  if (kept.delete(key)) released.push(key);
}

/** Takes the names of the objects that were given up since the last call. */
export function takeReleased(): string[] {
  const taken = released;
  released = [];
  return taken;
}

export function noteRung(key: string): void {
  rung.add(key);
}

/** The objects of the other process whose alarms have rung in this one: the runtime may forget an alarm that fails again and again. */
export function rungObjects(): readonly string[] {
  return [...rung];
}

/**
 * Tells the other process whether an object is this process's. A predecessor asks its successor for what it has given up, also before the
 * successor was told of that.
 */
export async function isOurs(key: string): Promise<boolean> {
  if (!hasGiven()) {
    await ownerOf(key);
    kept.delete(key);
    return true;
  }
  while (leaving.has(key)) await scheduler.wait(LOOK_MS);
  return kept.has(key);
}

/**
 * Waits for the decision and gives the owner of an object. Throws the 503 of an object that cannot be reached where it is not decided in
 * time.
 */
export async function ownerOf(key: string): Promise<"here" | "there"> {
  for (const deadline = Date.now() + MAX_WAIT_MS; ; await scheduler.wait(LOOK_MS)) {
    if (!leaving.has(key)) {
      if (phase === "alone") return "here";
      if (phase === "successor") return kept.has(key) ? "there" : "here";
      if (hasGiven() && kept.has(key)) return "here";
      if (phase === "succeeded") return "there";
    }
    if (Date.now() > deadline) throw notDecided();
  }
}

function notDecided(): ApiError {
  return new ApiError({
    status: 503,
    message: "What this server has stored of this cannot be reached just now. Please retry in a few seconds.",
    code: "storage_unavailable",
    headers: { "retry-after": "5" },
  });
}
