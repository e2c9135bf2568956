import { env } from "cloudflare:workers";
import { objectUnreachable, processState } from "./process-state.ts";

/**
 * Says whether this process runs the objects of its worker, or forwards their calls to the process that has taken its
 * place (docs/self-hosting.md#reloading). Two processes never run one object at the same time: in between, calls wait.
 *
 * The launcher moves a process from one to the other (`cli/reload/hand-over.ts`). Every other deployment owns its objects.
 */

/**
 * `ending`: the calls that are under way end, with the calls that their objects make, and others wait. `moving`: all calls
 * wait, because the objects are closed or, in a new process, have not been taken over.
 */
type Ownership = "owns" | "ending" | "moving" | "forwards";

let ownership: Ownership = "TAKES_OVER" in env ? "moving" : "owns";

/** False of a process that has not taken over any objects so far. */
let hasOwned = ownership === "owns";

/** True while runs are to stop where they can be resumed. */
let isSuspending = false;

/** How often a waiting call looks, and for how long. Milliseconds. */
const POLL_MS = 5;
const MAX_WAIT_MS = 60_000;

export function setOwnership(next: Ownership): void {
  ownership = next;
  hasOwned ||= next === "owns";
}

/** True while this process closes its objects. */
export function isClosing(): boolean {
  return hasOwned && (ownership === "ending" || ownership === "moving");
}

/** True of a process that has handed its objects over. */
export function hasHandedOver(): boolean {
  return ownership === "forwards";
}

/** True of a process whose objects run here and stay. */
export function ownsObjects(): boolean {
  return ownership === "owns";
}

/** Tells where the process's own objects are called. `isInner`: an object makes the call. Rejects with a 503 if that stays undecided. */
export function ownPlace(isInner: boolean): "here" | "next" | Promise<"here" | "next"> {
  if (ownership === "owns" || (ownership === "ending" && isInner)) return "here";
  return ownership === "forwards" ? "next" : decided().then(() => ownPlace(isInner));
}

/** Resolves when the process owns its objects, or forwards. */
async function decided(): Promise<void> {
  for (const deadline = Date.now() + MAX_WAIT_MS; ownership === "ending" || ownership === "moving"; ) {
    if (Date.now() > deadline) throw objectUnreachable();
    await scheduler.wait(POLL_MS);
  }
}

/** Resolves when the objects run here; false if they do not. */
export async function mayRing(): Promise<boolean> {
  return (await ownPlace(false)) === "here";
}

export function setSuspending(suspends: boolean): void {
  isSuspending = suspends;
}

export function runsAreSuspended(): boolean {
  return isSuspending;
}

/** Calls of this process's objects that are under way, without those that only wait for something. */
let underWay = 0;

/** Makes a call that ends, if possible, before the objects are closed. */
export async function counted<T>(call: () => T): Promise<Awaited<T>> {
  underWay += 1;
  try {
    return await call();
  } finally {
    underWay -= 1;
  }
}

/** Waits within a call, which may be cut off meanwhile and made again. */
export async function waiting<T>(promise: Promise<T>): Promise<T> {
  underWay -= 1;
  try {
    return await promise;
  } finally {
    underWay += 1;
  }
}

/** Resolves when no call is under way, or after `ms`. */
export async function untilCallsEnd(ms: number): Promise<void> {
  for (const deadline = Date.now() + ms; underWay > 0 && Date.now() < deadline; ) await scheduler.wait(POLL_MS);
}

let heldStreams = 0;

/** The number of streams whose answers are held. */
export function streamsHeld(): number {
  return heldStreams;
}

/**
 * Passes an answer on, or holds it until a process that hands over accepts no more connections: workerd then closes the
 * connection of each answer, and says so in its header. It says nothing where the header has been sent, or to an idle
 * client, whose next request is lost then if it comes at the same time. So streams are held from the beginning, and the
 * other answers only at the end.
 */
export async function released(answer: Response | Promise<Response>): Promise<Response> {
  const response = await answer;
  if (ownership === "owns") return response;
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") === true;
  const isHeld = () => !ownsObjects() && (isStream || processState.holdsAnswers) && !processState.hasRetired;
  if (!isHeld()) return response;
  heldStreams += Number(isStream);
  while (isHeld()) await scheduler.wait(POLL_MS);
  heldStreams -= Number(isStream);
  return response;
}
