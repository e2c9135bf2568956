import type { Form } from "./fields.ts";
import type { ApiObject } from "./json.ts";

/** The entries of the configuration that administrators change. Each kind has its form (docs/keys.md). */

/** In the API's form. */
type Entry = ApiObject;

export interface Kind {
  /** of the list */
  title: string;
  /** the word for one entry */
  one: string;
  /** the meaning of its name */
  name: string;
  /** the effect of its removal */
  removal: string;
  form: Form;
  /** The values of the form for an entry. */
  values: (entry: Entry) => ApiObject;
  /** The entry for the values of the form, or the changed fields of a server. */
  read: (given: ApiObject, before: Entry) => Entry;
}

/** Models as a list, or by the names that clients say. */
function modelsText(models: unknown) {
  if (Array.isArray(models)) return models.join(", ");
  return Object.entries(models ?? {})
    .map(([name, own]) => (name === own ? name : `${name} = ${own}`))
    .join(", ");
}

function modelsOf(parts: string[]): string[] | Record<string, string> {
  if (!parts.some((part) => part.includes("="))) return parts;
  return Object.fromEntries(
    parts.map((part) => {
      const [name = "", own = name] = part.split("=").map((each) => each.trim());
      return [name, own];
    }),
  );
}

const servers: Kind = {
  title: "Model servers",
  one: "server",
  name: "Name",
  removal: "It gets no further requests, and ends its running answers. Drain it first to move its conversations.",
  form: [
    { name: "url", label: "URL", placeholder: "http://gpu-1:8000/v1" },
    {
      name: "weight",
      label: "Weight",
      kind: "number",
      step: "any",
      note: "Its share of the conversations. 0: it keeps its own, and gets no new ones.",
    },
    { name: "drain", label: "Drain", kind: "check", note: "Its conversations move to other servers." },
    {
      name: "models",
      label: "Models",
      kind: "list",
      placeholder: "all of its models; or names, or name = its own name, separated by commas",
    },
    { name: "api_key", label: "API key of the server", kind: "secret", placeholder: "as it is" },
    { name: "others", label: "Others, as JSON", kind: "others", placeholder: '{"dialect": "sglang"}' },
  ],
  values: ({ name: _, api_key: _key, ...entry }) => ({ weight: 1, ...entry, models: modelsText(entry.models) }),
  read: ({ models, drain = false, ...given }, before) => {
    const entry: Entry = { ...given, drain, ...(models && { models: modelsOf(models) }) };
    // An empty field does not change its value.
    const isSame = (name: string) => JSON.stringify(entry[name]) === JSON.stringify(before[name]);
    const changed = Object.entries(entry).filter(([name]) => !isSame(name));
    return Object.fromEntries(changed.filter(([name, value]) => name !== "drain" || value || before.drain));
  },
};

/** The models of a route. Each has its share if there are several. */
function targetsText(to: unknown) {
  if (typeof to === "string") return to;
  if (!Array.isArray(to)) return "";
  return to.map(({ model, weight = 1 }) => (to.length === 1 ? model : `${model} ${weight}`)).join(", ");
}

const routes: Kind = {
  title: "Routes",
  one: "route",
  name: "Name that clients say",
  removal: "Running requests go on as they are.",
  form: [
    {
      name: "to",
      label: "Models",
      kind: "list",
      placeholder: "qwen3 95, qwen3-new 5",
      note: "One, or several with their shares of the conversations. Default: the name itself.",
    },
    {
      name: "fallbacks",
      label: "In its place",
      kind: "list",
      note: "Names that answer if no server of the model is healthy, or a request has failed before any output.",
    },
    {
      name: "context_window_fallbacks",
      label: "For long prompts",
      kind: "list",
      note: "Names that answer if the prompt is longer than the context window.",
    },
  ],
  values: (entry) => ({ ...entry, to: targetsText(entry.to) }),
  read: ({ to, ...fallbacks }) => ({
    ...(to && { to: to.map(targetOf) }),
    ...fallbacks,
  }),
};

function targetOf(text: string) {
  const [, model = text, weight] = /^(.*\S)\s+([\d.]+)$/.exec(text) ?? [];
  return { model, ...(weight !== undefined && { weight: Number(weight) }) };
}

const prices: Kind = {
  title: "Prices",
  one: "price",
  name: "Model, or * for all others",
  removal: "Running requests go on as they are.",
  form: [
    { name: "input", label: "Input, dollars for a million tokens", kind: "number", step: "any", isRequired: true },
    { name: "cached_input", label: "Cached input", kind: "number", step: "any" },
    { name: "output", label: "Output", kind: "number", step: "any", isRequired: true },
  ],
  values: (entry) => entry,
  read: (given) => given,
};

/** The kinds by the API's names. */
export type KindName = "upstreams" | "routes" | "model_prices";
export const KINDS: Record<KindName, Kind> = { upstreams: servers, routes, model_prices: prices };

/** The effective entries of a kind, by name. Aliases and fallbacks that have a variable of their own count as routes. */
export function entriesOf(kind: string, values: Record<string, ApiObject | undefined>): Record<string, Entry> {
  if (kind !== "routes") return values[kind] ?? {};
  const all: Record<string, Entry> = {};
  for (const [name, to] of Object.entries(values.model_aliases ?? {})) all[name] = { to };
  for (const [name, fallbacks] of Object.entries(values.model_fallbacks ?? {})) all[name] = { ...all[name], fallbacks };
  for (const [name, entry] of Object.entries(values.routes ?? {}))
    all[name] = typeof entry === "string" ? { to: entry } : entry;
  return all;
}
