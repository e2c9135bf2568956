import { ApiError } from "@responses-edge/responses-api/errors";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { z } from "zod";
import { mistakesWith, sourcesOf, type Variables } from "../config/index.ts";
import { CHANGED_VARIABLES, fileForm, type Overrides, overridable } from "../config/layers.ts";
import { putInForce } from "../store/deployment/keys/live-config.ts";
import { checkDisk } from "../store/objects/process-state.ts";
import type { Administrator } from "./keys.ts";

/** The configuration as administrators see it and change it while the server runs: model servers, routes and prices. */

/** Entries by name. Each replaces the entry of the other sources; `false` removes that entry, `null` removes the change. */
export const changeConfigurationBody = z.strictObject({
  upstreams: z.record(z.string(), overridable.upstreams.nullable()).optional(),
  routes: z.record(z.string(), overridable.routes.nullable()).optional(),
  model_prices: z.record(z.string(), overridable.model_prices.nullable()).optional(),
});

/** The configuration as it is shown. */
export const shownConfiguration = () =>
  z.object({
    object: z.literal("configuration"),
    version: z.int().min(0).describe("Grows with each change of an administrator."),
    values: z
      .looseObject({})
      .describe("The present configuration, in the form of the configuration file. Secrets are `****`."),
    sources: z.record(z.string(), z.array(z.enum(["environment", "file", "administrators"]))),
    overrides: z.looseObject({}).describe("What administrators have changed."),
  });

/** The administrator, and the environment whose configuration it is. */
export interface ConfigurationAccess {
  admin: Administrator;
  env: Parameters<typeof putInForce>[0];
}

/** The longest JSON of all changes together. UTF-16 units. */
const MAX_LENGTH = 512 * 1024;

/** Attempts at a change. Concurrent changes are rare. */
const MAX_ATTEMPTS = 4;

/** Gives the configuration in force in the form of the file, with its sources and the administrators' changes. Secrets are not shown. */
export async function retrieveConfiguration({ admin, env }: ConfigurationAccess) {
  const found = await directoryOf(admin).overrides(0);
  if (found) putInForce(env, found.version, JSON.parse(found.body) as Overrides);
  return shown(env, found?.version ?? 0);
}

/**
 * Changes the given fields for everything that begins from now on: at once in this isolate, within `KEY_CACHE_MS` in others.
 * Throws the 400 of a change that makes the configuration invalid, and the 409 where other changes kept coming first.
 */
export async function changeConfiguration({ admin, env }: ConfigurationAccess, body: unknown) {
  parse(changeConfigurationBody, body);
  const patch = body as Record<keyof Overrides, Record<string, unknown> | undefined>;
  checkDisk();
  const directory = directoryOf(admin);
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const { version, body: kept } = (await directory.overrides(0)) ?? { version: 0, body: "{}" };
    const next = patched(JSON.parse(kept) as Overrides, patch);
    const text = JSON.stringify(next);
    if (text.length > MAX_LENGTH) throw unusable(["expected at most 512 KiB of changes in all"]);
    const mistakes = mistakesWith(env, next);
    if (mistakes.length > 0) throw unusable(mistakes);
    const made = await directory.setOverrides(admin.name, version, text, JSON.stringify(withoutSecrets(patch)));
    if (made === null) continue;
    putInForce(env, made, next);
    await admin.forgetKeys();
    return shown(env, made);
  }
  const message = "Other administrators are changing the configuration. Please retry in a few seconds.";
  throw new ApiError({ status: 409, message, code: "configuration_changed", headers: { "retry-after": "2" } });
}

/** Merges a change into the earlier ones: model servers field by field, everything else by whole entries. */
function patched(overrides: Overrides, patch: Record<keyof Overrides, Record<string, unknown> | undefined>): Overrides {
  const next: Overrides = {};
  for (const kind of Object.keys(overridable) as (keyof Overrides)[]) {
    const entries = new Map(Object.entries(overrides[kind] ?? {}));
    for (const [name, given] of Object.entries(patch[kind] ?? {})) {
      const before = entries.get(name);
      if (given === null) entries.delete(name);
      else if (kind === "upstreams" && given && before)
        entries.set(name, { ...(before as object), ...(given as object) });
      else entries.set(name, given);
    }
    if (entries.size > 0) next[kind] = Object.fromEntries(entries);
  }
  return next;
}

function shown(env: Variables, version: number) {
  const { file, overrides, variables } = sourcesOf(env);
  const isIn = (from: object | undefined, name: string) =>
    (from as Record<string, unknown> | undefined)?.[name] != null;
  const sources = CHANGED_VARIABLES.map(({ name, kind }) => [
    name.toLowerCase(),
    [
      ...(isIn(file, name) ? ["file"] : isIn(env, name) ? ["environment"] : []),
      ...(overrides[kind] ? ["administrators"] : []),
    ],
  ]);
  return {
    object: "configuration" as const,
    version,
    /** In the form of the file. */
    values: withoutSecrets(fileForm(variables)) as Record<string, unknown>,
    sources: Object.fromEntries(sources) as Record<string, string[]>,
    overrides: withoutSecrets(overrides) as Record<string, unknown>,
  };
}

const HIDDEN = "****";

/** A value whose secrets are hidden, by the names of their fields. */
function withoutSecrets(value: unknown, name?: string): unknown {
  if (name === "api_key") return value == null ? value : HIDDEN;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => withoutSecrets(each));
  const entries = Object.entries(value).map(([key, each]) => [
    key,
    name === "headers" ? HIDDEN : withoutSecrets(each, key),
  ]);
  return Object.fromEntries(entries);
}

function unusable(mistakes: readonly string[]): ApiError {
  const message = `The configuration would not be usable: ${mistakes.join("; ")}`;
  return new ApiError({ status: 400, message, code: "invalid_configuration" });
}

function directoryOf({ directories }: Administrator) {
  return directories.getByName();
}
