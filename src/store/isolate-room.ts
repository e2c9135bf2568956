import { ApiError, tooManyInProgress } from "../protocol/errors.ts";
import { tenantRuns } from "./tenant-load.ts";

/**
 * What requests hold of this isolate, whoever asks. An isolate that runs out of memory loses all that it does (Cloudflare
 * gives it 128 MB), so that new ones are refused before. It is counted in places, of which there are `MAX_OPEN_TURNS`: a turn takes
 * one, and one more for each `PLACE_LENGTH` of its prompt; a body takes places also while it is read.
 */

/** Who asks, and how many places there are for all. */
export interface Asker {
  tenant: string;
  config: { maxOpenTurns: number };
}

/** In bytes, or in UTF-16 units, as the text came. */
const PLACE_LENGTH = 256 * 1024;

/** A shorter body is not counted while it is read: its connection takes as much. Bytes. */
export const SHORT_BODY_LENGTH = 16 * 1024;

/** While it is read, a body is there as bytes, as text and as values. */
const BODY_COPIES = 3;

/** Seconds. By then other turns have ended, or another isolate takes the request. */
const RETRY_AFTER = "2";

/** Tenants of whom one was here so long ago are not in each other's way. Milliseconds. */
const ABOUT_MS = 600_000;

/** How many places something of a length takes. */
const PLACES_OF = {
  turn: (length: number) => 1 + Math.floor(length / PLACE_LENGTH),
  body: (length: number) => (length <= SHORT_BODY_LENGTH ? 0 : Math.ceil((BODY_COPIES * length) / PLACE_LENGTH)),
  text: (length: number) => Math.floor(length / PLACE_LENGTH),
};

type Kind = keyof typeof PLACES_OF;

/** What is held, apart from its holder: it is still known when that is gone. */
interface Holding {
  tenant: string;
  kind: Kind;
  places: number;
}

/**
 * A request that the platform gives up runs none of its last words, so that nothing would give its places back: what
 * nobody holds any more is none.
 */
const holdings = new Map<WeakRef<Place>, Holding>();

let taken = 0;
const takenBy = new Map<string, number>();

/** Places that are held until it is disposed of, which may happen more than once, or is no longer reachable. */
export class Place implements Disposable {
  readonly #asker: Asker;
  readonly #holding: Holding;
  #key: WeakRef<Place> | undefined;
  #isDisposed = false;

  constructor(asker: Asker, kind: Kind) {
    this.#asker = asker;
    this.#holding = { tenant: asker.tenant, kind, places: 0 };
  }

  /**
   * Has it hold as many places as what is so long takes, instead of those that it had; none once it was disposed of. Throws, and
   * leaves it as it was, the 503 of an isolate that has no room for more, and the 429 of a tenant that leaves none to others; not
   * where the places are taken in any case.
   */
  fit(length: number, inAnyCase = false): void {
    if (this.#isDisposed) return;
    // One request is let in however long it is, where nothing else is there.
    const places = Math.min(PLACES_OF[this.#holding.kind](length), shareOf(this.#asker));
    const more = places - this.#holding.places;
    if (more > 0 && !inAnyCase) expectPlaces(this.#asker, more);
    if (more === 0) return;
    this.#holding.places = places;
    count(this.#asker.tenant, more);
    this.#key ??= new WeakRef<Place>(this);
    if (places === 0) holdings.delete(this.#key);
    else holdings.set(this.#key, this.#holding);
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true;
    if (this.#key && holdings.delete(this.#key)) count(this.#holding.tenant, -this.#holding.places);
  }
}

/** Lets a turn in beside its client, whose request is so long. Throws as `Place.fit` does. */
export function enterTurn(asker: Asker, length: number): Place {
  const place = new Place(asker, "turn");
  place.fit(length);
  return place;
}

/** The places of a body that is being read: none yet. */
export function bodyPlace(asker: Asker): Place {
  return new Place(asker, "body");
}

/**
 * The places of text that is kept, beside what else is counted of it: of a run that lives in a home, which is one of its tenant's runs
 * (`tenantRuns`), and of frames that wait. None yet.
 */
export function textPlace(asker: Asker): Place {
  return new Place(asker, "text");
}

/** Throws what refuses so many places more. Runs that live in homes have one each. */
export function expectPlaces(asker: Asker, more: number): void {
  const { tenant, config } = asker;
  const share = areOthersAbout(tenant) ? shareOf(asker) : Number.POSITIVE_INFINITY;
  const isOver = (runs: number) => (takenBy.get(tenant) ?? 0) + runs + more > share;
  const isFull = (runs: number) => taken + runs + more > config.maxOpenTurns;
  // What nobody holds any more is looked for only where it would make room.
  if (isFull(tenantRuns.most)) {
    forgetLost();
    if (isFull(tenantRuns.total())) throw overloaded();
  }
  if (isOver(tenantRuns.most) && isOver(tenantRuns.heldBy(tenant))) {
    forgetLost();
    if (isOver(tenantRuns.heldBy(tenant))) throw leavesNoRoom();
  }
}

/** How many turns run beside their clients. */
export function turnsBesideClients(): number {
  forgetLost();
  return holdings.values().reduce((sum, { kind }) => sum + Number(kind === "turn"), 0);
}

function count(tenant: string, places: number): void {
  taken += places;
  const left = (takenBy.get(tenant) ?? 0) + places;
  if (left === 0) takenBy.delete(tenant);
  else takenBy.set(tenant, left);
}

function forgetLost(): void {
  for (const [held, { tenant, places }] of holdings) {
    if (held.deref() === undefined && holdings.delete(held)) count(tenant, -places);
  }
}

/** How many places one tenant may take where there are others: three quarters. */
function shareOf({ config: { maxOpenTurns } }: Asker): number {
  return maxOpenTurns - Math.floor(maxOpenTurns / 4);
}

let lastTenant: string | undefined;
let othersAt = Number.NEGATIVE_INFINITY;

/** Whether another tenant than this one was here lately. */
function areOthersAbout(tenant: string): boolean {
  const now = Date.now();
  if (tenant !== lastTenant && lastTenant !== undefined) othersAt = now;
  lastTenant = tenant;
  return now - othersAt < ABOUT_MS;
}

function leavesNoRoom(): ApiError {
  return tooManyInProgress("Your requests in progress leave no room to others. Please retry in a few seconds.");
}

/** OpenAI's code and status of a server that has too much to do; its clients try again after `retry-after`. */
function overloaded(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server is overloaded: it has as many responses in progress as it may. Please retry in a few seconds.",
    code: "server_is_overloaded",
    headers: { "retry-after": RETRY_AFTER },
  });
}
