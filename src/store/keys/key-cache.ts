import { ApiError } from "@responses-edge/responses-api/errors";
import { endUserLimits } from "@responses-edge/usage-limits";
import {
  type Grants,
  type Identity,
  isCounted,
  limitsStored,
  policyOf,
  withStoredBytes,
} from "../../contract/grants.ts";
import type { OtherWorker } from "../workers.ts";
import { isMinted, isMintedForm, keyHash } from "./api-keys.ts";
import { DIRECTORY, type KeyDirectory } from "./key-directory.ts";
import type { KeyRecord } from "./key-store.ts";
import { noteOverridesVersion } from "./live-config.ts";

/**
 * This isolate remembers keys for a while: no request of a known key asks the directory, and what is revoked there is
 * refused here as soon as that while is over. A key in use is looked up again before that, beside a request.
 */

/** Entries. The oldest are forgotten: of keys that are in use, each is younger than the time for which it is believed. */
const MAX_KNOWN = 20_000;

interface Entry<Value> {
  value: Value;
  /** Unix milliseconds. */
  at: number;
  /** Since when somebody looks again. */
  lookingSince: number | undefined;
}

/** Values that are believed for `maxAgeMs`, looked up again in the second half of that, and forgotten oldest first. */
export class AgeingCache<Value> {
  readonly #entries = new Map<string, Entry<Value>>();
  readonly #size: number;
  /** How often it was cleared. */
  #cleared = 0;

  constructor(size = MAX_KNOWN) {
    this.#size = size;
  }

  /**
   * The value of a name: the one that is known, or what `look` gives. A rejection of `look` is passed on where no value is known that is
   * young enough. `beside` takes what need not be waited for.
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
    // A clock that has gone back tells no age.
    if (!entry || age >= maxAgeMs || age < 0) return this.#look(name, look);
    if (age >= maxAgeMs / 2 && !(now - (entry.lookingSince ?? 0) < maxAgeMs / 2)) {
      entry.lookingSince = now;
      beside(this.#look(name, look).catch(() => {}));
    }
    return entry.value;
  }

  /** Tells whether a value is known that is young enough. */
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

  /** Forgets all values, and those that are being looked up. */
  clear(): void {
    this.#entries.clear();
    this.#cleared += 1;
  }

  async #look(name: string, look: () => Promise<Value>): Promise<Value> {
    // Its age counts from before the question: what has changed while it was answered is not in it, perhaps.
    const at = Date.now();
    const cleared = this.#cleared;
    const value = await look();
    if (cleared === this.#cleared) this.put(name, value, at);
    return value;
  }
}

/** A key as requests use it: who asks with it, as long as it is good. */
interface KnownKey {
  record: KeyRecord;
  identity: Identity;
}

export class KeyCache {
  readonly #directories: DurableObjectNamespace<KeyDirectory>;
  /** Is told, with each look-up, which version of the configuration's changes the directory has. */
  readonly #noteVersion: (version: number) => Promise<void> | undefined;
  readonly #known = new AgeingCache<KnownKey>();
  /** Keys that there were once, or that another mint has made. Apart, so that they do not push out those in use. */
  readonly #unknown = new AgeingCache<true>();
  readonly #tenants = new AgeingCache<Identity>();
  /** As of when it was told, Unix milliseconds. */
  #mint: { secret: string; at: number } | undefined;
  /** The bytes that tenants may store whose own limits do not say it; 0 is any amount. */
  readonly storedBytes: number;

  /** `storedBytes`: what tenants may store whose own limits do not say it; 0 is any amount. */
  constructor(
    directories: DurableObjectNamespace<KeyDirectory>,
    storedBytes: number,
    noteVersion: (version: number) => Promise<void> | undefined = () => undefined,
  ) {
    this.#directories = directories;
    this.#noteVersion = noteVersion;
    this.storedBytes = storedBytes;
  }

  /**
   * The identity of a key of the directory; undefined where the text is none. At once where the key is known. Throws, or
   * rejects with, the 401 of a key that is disabled or over, and the 503 where the directory cannot be asked.
   */
  identityOf(
    text: string,
    maxAgeMs: number,
    beside: (promise: Promise<unknown>) => void,
  ): Identity | undefined | Promise<Identity | undefined> {
    if (!isMintedForm(text)) return undefined;
    // An invention: nothing is kept of it, and nobody is asked, unless the mint's secret may have become another one.
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

  /** Rejects with `NoSuchKey` where there is none (any more), which is known from then on. */
  async #look(hash: string): Promise<KnownKey> {
    const at = Date.now();
    const { mint, key, overridesVersion } = await this.#ask((directory) => directory.lookUp(hash));
    await this.#noteVersion(overridesVersion);
    this.#mint = { secret: mint, at };
    if (key) {
      const { id, tenant, limits, tenantLimits } = key;
      return { record: key, identity: newIdentity({ tenant, keyId: id }, tenantLimits, limits, this.storedBytes) };
    }
    this.#known.delete(hash);
    this.#unknown.put(hash, true, at);
    throw new NoSuchKey();
  }

  /** The identity of a tenant whose key or token the directory does not know: the tenant's own limits bind it. Rejects with the 503. */
  identityOfTenant(
    who: Pick<Identity, "tenant" | "keyId">,
    maxAgeMs: number,
    beside: (promise: Promise<unknown>) => void,
  ): Identity | Promise<Identity> {
    const look = async () => {
      const { limits, overridesVersion } = await this.#ask((directory) => directory.lookUpTenant(who.tenant));
      await this.#noteVersion(overridesVersion);
      return newIdentity(who, limits, null, this.storedBytes);
    };
    return this.#tenants.get(`${who.keyId}:${who.tenant}`, maxAgeMs, look, beside);
  }

  /** Forgets all that is known: to be called when a key or a tenant's limits were changed, which this isolate then heeds at once. */
  forget(): void {
    for (const cache of [this.#known, this.#unknown, this.#tenants]) cache.clear();
  }

  async #ask<T>(question: (directory: DurableObjectStub<KeyDirectory>) => Promise<T>): Promise<T> {
    try {
      return await question(this.#directories.getByName(DIRECTORY));
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw new ApiError({
        status: 503,
        message: "API keys cannot be looked up at the moment. Please retry in a few seconds.",
        code: "keys_unavailable",
        headers: { "retry-after": "2" },
      });
    }
  }
}

class NoSuchKey extends Error {}

/** The identity that the grants of a tenant and a key make. `storedBytes`: what the tenant may store where its own do not say it; 0 is any amount. */
export function newIdentity(
  who: Pick<Identity, "tenant" | "keyId">,
  ofTenant: Grants | null,
  ofKey: Grants | null,
  storedBytes: number,
): Identity {
  const hasGrants = ofTenant !== null || ofKey !== null;
  const tellsUsage = isCounted(ofTenant) || isCounted(ofKey);
  const tenant = withStoredBytes(ofTenant, storedBytes);
  return {
    ...who,
    policy: hasGrants ? policyOf(ofTenant, ofKey) : undefined,
    counted: tellsUsage || isCounted(tenant) ? { tenant, key: ofKey, tellsUsage } : undefined,
    endUser: endUserLimits(ofTenant, ofKey),
    storingKey: limitsStored(tenant) || limitsStored(ofKey) ? who.keyId : undefined,
  };
}

/** The identity of a key that is good now. Throws the 401 of one that is not. */
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

/** Another worker, which knows keys, too. */
export interface OtherKeys extends OtherWorker {
  forgetKeys(): Promise<void>;
}

const caches = new WeakMap<object, KeyCache>();

/** The cache of this isolate. */
export function keyCache(env: { KEYS: DurableObjectNamespace<KeyDirectory> }, storedBytes: number): KeyCache {
  let cache = caches.get(env);
  if (cache?.storedBytes !== storedBytes) {
    cache = new KeyCache(env.KEYS, storedBytes, (version) => noteOverridesVersion(env, version));
    caches.set(env, cache);
  }
  return cache;
}
