import { logLine } from "@responses-edge/json-text";
import { configure, loadConfig, type Variables } from "../../config/index.ts";
import type { Overrides } from "../../config/layers.ts";
import { DIRECTORY, type KeyDirectory } from "./key-directory.ts";

/**
 * The administrators' changes of the configuration, as this isolate knows them. Each look-up of a key tells which version there is, so that
 * nothing more is asked before there is another. A change holds at once in the isolate that has made it.
 */

type DirectoryEnv = Variables & { KEYS?: DurableObjectNamespace<KeyDirectory> };

interface Known {
  /** The version of the changes that are in force. */
  version: number;
  /** When the directory was last asked. Unix milliseconds. */
  askedAt: number;
}

const known = new WeakMap<object, Known>();

/** Notes which version the directory has. A promise where that is another one than here: it resolves when the changes are in force. */
export function noteOverridesVersion(env: DirectoryEnv, version: number): Promise<void> | undefined {
  const state = known.get(env) ?? { version: 0, askedAt: 0 };
  known.set(env, { ...state, askedAt: Date.now() });
  return version === state.version ? undefined : refreshOverrides(env);
}

/** The same for who looks no keys up: asks, unless somebody in this isolate has asked of late. Does not reject. */
export async function currentOverrides(env: DirectoryEnv): Promise<void> {
  const config = loadConfig(env);
  const age = Date.now() - (known.get(env)?.askedAt ?? Number.NEGATIVE_INFINITY);
  if (config.hasAdminApi && (age >= config.keys.cacheMs || age < 0)) await refreshOverrides(env);
}

/** Puts the changes that the directory has in force, where they are others than those known here. Does not throw. */
async function refreshOverrides(env: DirectoryEnv): Promise<void> {
  const { version = 0 } = known.get(env) ?? {};
  known.set(env, { version, askedAt: Date.now() });
  try {
    const found = await env.KEYS?.getByName(DIRECTORY).overrides(version);
    if (found) putInForce(env, found.version, JSON.parse(found.body) as Overrides);
  } catch {
    console.warn(logLine({ level: "warn", overrides_not_read: true }));
  }
}

/** Puts changes in force here, as of a version. Older ones than those in force are no news. */
export function putInForce(env: DirectoryEnv, version: number, overrides: Overrides): void {
  const state = known.get(env);
  if (state && state.version > version) return;
  configure(env, { overrides }, true);
  known.set(env, { version, askedAt: Date.now() });
}
