import { ApiError } from "@responses-edge/responses-api/errors";
import { endUserLimits } from "@responses-edge/usage-limits";
import {
  type Grants,
  type Identity,
  isCounted,
  policyOf,
  type StorageDefaults,
  storageOf,
} from "../../../contract/grants.ts";
import type { Env } from "../../../env.ts";
import type { OtherWorker } from "../../objects/workers.ts";
import { isMinted, isMintedForm, keyHash } from "./api-keys.ts";
import { askDirectory } from "./directory-state.ts";
import type { KeyRecord } from "./key-store.ts";
import { noteOverridesVersion } from "./live-config.ts";

/**
 * Remembers keys in this isolate for a limited time: requests with a known key do not ask the directory, and a revoked
 * key is refused once that time is over. A key in use is looked up again before that, beside a request.
 */

/** Most entries. The oldest are forgotten first; each entry of a key in use is younger than the time for which it is valid. */
const MAX_KNOWN = 20_000;

interface Entry<Value> {
  value: Value;
  /** Unix milliseconds. */
  at: number;
  /** When a refresh began. */
  lookingSince: number | undefined;
}

/** Values that are valid for `maxAgeMs`, refreshed in the second half of it, and forgotten oldest first. */
export class AgeingCache<Value> {
  readonly #entries = new Map<string, Entry<Value>>();
  readonly #size: number;
  /** Number of calls of `clear`. */
  #cleared = 0;

  constructor(size = MAX_KNOWN) {
    this.#size = size;
  }

  /**
   * The value of a name: the known one, or the one that `look` gives. Passes on a rejection of `look` if no valid value
   * is known. `beside` takes work that the caller need not wait for.
   */
  get(
    name: string,
    maxAgeMs: number,
    look: () => Promise<Value>,
    beside: (promise: Promise<unknown>) => void,
  ): Value | Promise<Value> {
    const now = Date.now();
    const entry = this.#entries.get(name);
    const age = entry ? now - entry.at : Number.POSITIVE_INFINITY;
    // If the clock has gone back, the age is unknown.
    if (!entry || age >= maxAgeMs || age < 0) return this.#look(name, look);
    if (age >= maxAgeMs / 2 && !(now - (entry.lookingSince ?? 0) < maxAgeMs / 2)) {
      entry.lookingSince = now;
      beside(this.#look(name, look).catch(() => {}));
    }
    return entry.value;
  }

  /** Tells whether a valid value is known. */
  has(name: string, maxAgeMs: number): boolean {
    const entry = this.#entries.get(name);
    const age = entry ? Date.now() - entry.at : -1;
    return age >= 0 && age < maxAgeMs;
  }

  delete(name: string): void {
    this.#entries.delete(name);
  }

  put(name: string, value: Value, at = Date.now()): void {
    this.#entries.delete(name);
    this.#entries.set(name, { value, at, lookingSince: undefined });
    if (this.#entries.size <= this.#size) return;
    const oldest = this.#entries.keys().next().value;
    if (oldest !== undefined) this.#entries.delete(oldest);
  }

  /** Forgets all values, including those that are being looked up. */
  clear(): void {
    this.#entries.clear();
    this.#cleared += 1;
  }

  async #look(name: string, look: () => Promise<Value>): Promise<Value> {
    // Its age counts from before the question: a change during the answer may not be in it.
    const at = Date.now();
    const cleared = this.#cleared;
    const value = await look();
    if (cleared === this.#cleared) this.put(name, value, at);
    return value;
  }
}

/** A key as requests use it: its identity, and how long it is valid. */
interface KnownKey {
  record: KeyRecord;
  identity: Identity;
}

export class KeyCache {
  readonly #directories: Env["KEYS"];
  /** Called with each look-up, with the directory's version of the configuration changes. */
  readonly #noteVersion: (version: number) => Promise<void> | undefined;
  readonly #known = new AgeingCache<KnownKey>();
  /** Keys that do not exist any more, or that another mint has made. Kept apart, so that they do not displace those in use. */
  readonly #unknown = new AgeingCache<true>();
  readonly #tenants = new AgeingCache<Identity>();
  /** The mint's secret, and when it was read, Unix milliseconds. */
  #mint: { secret: string; at: number } | undefined;
  readonly #defaults: StorageDefaults;

  constructor(
    directories: Env["KEYS"],
    defaults: StorageDefaults,
    noteVersion: (version: number) => Promise<void> | undefined = () => undefined,
  ) {
    this.#directories = directories;
    this.#noteVersion = noteVersion;
    this.#defaults = defaults;
  }

  /** Tells whether its identities have these defaults. */
  has({ storedBytesPerTenant, diskShare }: StorageDefaults): boolean {
    return this.#defaults.storedBytesPerTenant === storedBytesPerTenant && this.#defaults.diskShare === diskShare;
  }

  /**
   * The identity of a key of the directory; undefined if there is none with that text. Synchronous if the key is known.
   * Throws, or rejects with, the 401 of a disabled or expired key, and the 503 if the directory cannot be asked.
   */
  identityOf(
    text: string,
    maxAgeMs: number,
    beside: (promise: Promise<unknown>) => void,
  ): Identity | undefined | Promise<Identity | undefined> {
    if (!isMintedForm(text)) return undefined;
    // An invented text: nothing is stored and nobody is asked, unless the mint's secret may have changed.
    const mint = this.#mint;
    if (mint && !isMinted(text, mint.secret) && Math.abs(Date.now() - mint.at) < maxAgeMs) return undefined;
    const hash = keyHash(text);
    if (this.#unknown.has(hash, maxAgeMs)) return undefined;
    const known = this.#known.get(hash, maxAgeMs, () => this.#look(hash), beside);
    if (!(known instanceof Promise)) return usable(known);
    return known.then(usable, (error: unknown) => {
      if (error instanceof NoSuchKey) return undefined;
      throw error;
    });
  }

  /** Rejects with `NoSuchKey` if the key does not exist (any more), which is remembered. */
  async #look(hash: string): Promise<KnownKey> {
    const at = Date.now();
    const { mint, key, overridesVersion } = await askDirectory(this.#directories, (directory) =>
      directory.lookUp(hash),
    );
    await this.#noteVersion(overridesVersion);
    this.#mint = { secret: mint, at };
    if (key) {
      const { id, tenant, limits, tenantLimits } = key;
      return { record: key, identity: newIdentity({ tenant, keyId: id }, tenantLimits, limits, this.#defaults) };
    }
    this.#known.delete(hash);
    this.#unknown.put(hash, true, at);
    throw new NoSuchKey();
  }

  /** The identity of a tenant whose key or token the directory does not know: the tenant's own limits apply. Rejects with the 503. */
  identityOfTenant(
    who: Pick<Identity, "tenant" | "keyId">,
    maxAgeMs: number,
    beside: (promise: Promise<unknown>) => void,
  ): Identity | Promise<Identity> {
    const look = async () => {
      const { limits, overridesVersion } = await askDirectory(this.#directories, (directory) =>
        directory.lookUpTenant(who.tenant),
      );
      await this.#noteVersion(overridesVersion);
      return newIdentity(who, limits, null, this.#defaults);
    };
    return this.#tenants.get(`${who.keyId}:${who.tenant}`, maxAgeMs, look, beside);
  }

  /** Forgets everything, after a change of keys or limits, so that it takes effect in this isolate at once. */
  forget(): void {
    for (const cache of [this.#known, this.#unknown, this.#tenants]) cache.clear();
  }
}

class NoSuchKey extends Error {}

/** The identity that results from the grants of a tenant and a key. */
export function newIdentity(
  who: Pick<Identity, "tenant" | "keyId">,
  ofTenant: Grants | null,
  ofKey: Grants | null,
  defaults: StorageDefaults,
): Identity {
  const hasGrants = ofTenant !== null || ofKey !== null;
  const { tenant, diskShare, isStoredCounted } = storageOf(ofTenant, ofKey, defaults);
  return {
    ...who,
    policy: hasGrants ? policyOf(ofTenant, ofKey) : undefined,
    counted: isCounted(tenant) || isCounted(ofKey) ? { tenant, key: ofKey } : undefined,
    endUser: endUserLimits(ofTenant, ofKey),
    storingKey: isStoredCounted ? who.keyId : undefined,
    diskShare,
  };
}

/** The identity of a valid key. Throws the 401 of an invalid one. */
function usable({ record, identity }: KnownKey): Identity {
  if (record.disabled) throw refused("This API key is disabled.", "disabled_api_key");
  if (record.expiresAt !== null && Date.now() >= record.expiresAt) {
    throw refused("This API key has expired.", "expired_api_key");
  }
  return identity;
}

function refused(message: string, code: string): ApiError {
  return new ApiError({ status: 401, message, code, headers: { "www-authenticate": "Bearer" } });
}

/** Another worker, which caches keys, too. */
export interface OtherKeys extends OtherWorker {
  forgetKeys(): Promise<void>;
}

const caches = new WeakMap<object, KeyCache>();

/** The cache of this isolate. */
export function keyCache(env: Parameters<typeof noteOverridesVersion>[0], defaults: StorageDefaults): KeyCache {
  let cache = caches.get(env);
  if (!cache?.has(defaults)) {
    cache = new KeyCache(env.KEYS, defaults, (version) => noteOverridesVersion(env, version));
    caches.set(env, cache);
  }
  return cache;
}
