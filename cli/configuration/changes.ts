import { isDeepStrictEqual } from "node:util";
import type { TextVariables } from "../../src/config/index.ts";

/** The difference of two configurations in names only: values may be secrets. */

type Variables = Readonly<Record<string, string | undefined>>;

/** Entries of keys: what stands before the hash is the name of a tenant or an administrator. The text of a key has no name. */
const KEY_ENTRY = /^\s*([^:\s]+):[0-9a-f]{64}(?::\S*)?\s*$/i;
const KEY_VARIABLES = ["API_KEYS", "ADMIN_KEY"];

/**
 * The variables that differ, each with the entries of its list of keys, servers or other named things that were added, removed or
 * changed: `API_KEYS (acme added)`.
 */
export function changesBetween(before: Variables, after: Variables): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names.flatMap((name) => {
    const [had, has] = [before[name], after[name]];
    if (had === has) return [];
    const entries = entryChanges(entriesOf(name, had), entriesOf(name, has));
    return `${name}${entries.length > 0 ? ` (${entries.join(", ")})` : ""}`;
  });
}

/** The entries of a variable, by their names; those of a name are together. */
function entriesOf(name: string, value: string | undefined): Map<string, unknown[]> {
  const entries = KEY_VARIABLES.includes(name) ? keysIn(value) : namedIn(value);
  return Map.groupBy(entries, ([entry]) => entry) as Map<string, unknown[]>;
}

function keysIn(value = ""): [string, unknown][] {
  return value.split(",").flatMap((entry): [string, unknown][] => {
    const [, name] = KEY_ENTRY.exec(entry) ?? [];
    return name === undefined ? [] : [[name, entry.trim()]];
  });
}

/** The members of an object in JSON, or the elements of a list that have a `name`. */
function namedIn(value = ""): [string, unknown][] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(value);
  } catch {
    return [];
  }
  if (typeof parsed !== "object" || parsed === null) return [];
  if (!Array.isArray(parsed)) return Object.entries(parsed);
  return parsed.flatMap((entry) => (typeof entry?.name === "string" ? [[entry.name, entry] as [string, unknown]] : []));
}

function entryChanges(before: ReadonlyMap<string, unknown[]>, after: ReadonlyMap<string, unknown[]>): string[] {
  const names = [...new Set([...before.keys(), ...after.keys()])];
  return names.flatMap((name) => {
    const [had, has] = [before.get(name), after.get(name)];
    if (isDeepStrictEqual(had, has)) return [];
    return `${name} ${had === undefined ? "added" : has === undefined ? "removed" : "changed"}`;
  });
}

/**
 * The keys and model servers that a change takes away, in words, where these are all or most of them: an editor or a copy that has
 * stopped in the middle of the file does that, too. Undefined for another change.
 */
export function lossOf(before: TextVariables, after: TextVariables): string | undefined {
  const lost = Object.entries(COUNTED).flatMap(([what, count]) => {
    const [had, has] = [count(before), count(after)];
    return has * 2 < had ? [`${had - has} of ${had} ${what}`] : [];
  });
  return lost.length === 0 ? undefined : lost.join(" and ");
}

const COUNTED: Readonly<Record<string, (variables: TextVariables) => number>> = {
  keys: ({ API_KEYS = "", ADMIN_KEY = "" }) => [API_KEYS, ADMIN_KEY].join().split(",").filter(Boolean).length,
  "model servers": ({ VLLM_BASE_URL, UPSTREAMS }) => {
    return Number(VLLM_BASE_URL !== undefined) + Object.keys(JSON.parse(UPSTREAMS ?? "{}") ?? {}).length;
  },
};
