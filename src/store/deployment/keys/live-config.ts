import { logLine } from "@responses-edge/bounded-io/json-text";
import { configure, loadConfig, type Variables } from "../../../config/index.ts";
import type { Overrides } from "../../../config/layers.ts";
import type { Env } from "../../../env.ts";
import { askDirectory } from "./directory-state.ts";

/**
 * The administrators' configuration changes, as this isolate knows them. Each look-up of a key gives the directory's version, so
 * that the changes are read only when there is a new one. A change takes effect at once in the isolate that has made it.
 */

interface Known {
  /** The version of the changes that are in force. */
  version: number;
  /** When the directory was last asked. Unix milliseconds. */
  askedAt: number;
}

const known = new WeakMap<object, Known>();

/** Notes the directory's version. Gives a promise if it differs from this isolate's; it resolves when the changes are in force. */
export function noteOverridesVersion(env: Variables & Pick<Env, "KEYS">, version: number): Promise<void> | undefined {
  const state = known.get(env) ?? { version: 0, askedAt: 0 };
  known.set(env, { ...state, askedAt: Date.now() });
  return version === state.version ? undefined : refreshOverrides(env);
}

/** The same without a look-up of keys: asks the directory, unless this isolate has asked it lately. Does not reject. */
export async function currentOverrides(env: Variables & Pick<Env, "KEYS">): Promise<void> {
  const config = loadConfig(env);
  const age = Date.now() - (known.get(env)?.askedAt ?? Number.NEGATIVE_INFINITY);
  if (config.hasAdminApi && (age >= config.keys.cacheMs || age < 0)) await refreshOverrides(env);
}

/** Puts the directory's changes in force, if they differ from this isolate's. Does not throw. */
async function refreshOverrides(env: Variables & Pick<Env, "KEYS">): Promise<void> {
  const { version = 0 } = known.get(env) ?? {};
  known.set(env, { version, askedAt: Date.now() });
  try {
    const found = await askDirectory(env.KEYS, (directory) => directory.overrides(version));
    if (found) putInForce(env, found.version, JSON.parse(found.body) as Overrides);
  } catch {
    console.warn(logLine({ level: "warn", overrides_not_read: true }));
  }
}

/** Puts changes of a version in force here. Ignores versions older than the current one. */
export function putInForce(env: Variables & Pick<Env, "KEYS">, version: number, overrides: Overrides): void {
  const state = known.get(env);
  if (state && state.version > version) return;
  configure(env, { overrides }, true);
  known.set(env, { version, askedAt: Date.now() });
}
