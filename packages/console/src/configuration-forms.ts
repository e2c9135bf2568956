import { html } from "lit-html";
import type { ApiObject } from "./json.ts";

/** The entries of the configuration that administrators change. Each kind has its form (docs/keys.md). */

/** In the API's form */
export type Entry = ApiObject;

export interface Kind {
  /** of the list */
  title: string;
  /** the word for one entry */
  one: string;
  /** the meaning of its name */
  name: string;
  summary: (entry: Entry) => string;
  /** a template; `prefix` starts the ids of the fields */
  fields: (entry: Entry, prefix: string) => unknown;
  /** The entry in the form, or the changed fields of a server. Throws an Error that names the invalid field. */
  read: (form: FormData, before: Entry) => Entry;
}

function text(form: FormData, name: string) {
  return String(form.get(name) ?? "").trim();
}

/** Parts of a text that commas separate. */
function listed(given: string) {
  const parts = given.split(/[,\n]/).map((part) => part.trim());
  return parts.filter((part) => part !== "");
}

function labelled(id: string, label: string, field: unknown, note?: string) {
  return html`<div><label for=${id}>${label}</label>${field}${note ? html`<p class="note">${note}</p>` : ""}</div>`;
}

function textField(id: string, name: string, value: unknown, placeholder: string = "") {
  return html`<input dir="auto" id=${id} name=${name} autocomplete="off" spellcheck="false" placeholder=${placeholder} .value=${String(value ?? "")} />`;
}

function numberField(id: string, name: string, value: unknown) {
  return html`<input id=${id} name=${name} type="number" min="0" step="any" inputmode="decimal" .value=${String(value ?? "")} />`;
}

/** Models as a list, or by the names that clients say. */
function modelsText(models: unknown) {
  if (Array.isArray(models)) return models.join(", ");
  return Object.entries(models ?? {})
    .map(([name, own]) => (name === own ? name : `${name} = ${own}`))
    .join(", ");
}

function modelsOf(given: string): string[] | Record<string, string> | undefined {
  const parts = listed(given);
  if (parts.length === 0) return undefined;
  if (!parts.some((part) => part.includes("="))) return parts;
  return Object.fromEntries(
    parts.map((part) => {
      const [name = "", own = name] = part.split("=").map((each) => each.trim());
      return [name, own];
    }),
  );
}

/** The fields of a server that have a control of their own. */
const OWN_FIELDS = new Set(["name", "url", "weight", "drain", "models", "api_key", "headers", "binding"]);

const servers: Kind = {
  title: "Model servers",
  one: "server",
  name: "Name",
  summary: ({ url, binding, weight = 1, drain, models, discover }) =>
    [
      url ?? `binding ${binding}`,
      `weight ${weight}`,
      ...(drain ? ["draining"] : []),
      ...(discover ? [`found by ${discover}`] : []),
      ...(models ? [`models ${modelsText(models)}`] : []),
    ].join(" · "),
  fields: (entry, prefix) => {
    const others = Object.fromEntries(Object.entries(entry).filter(([name]) => !OWN_FIELDS.has(name)));
    return html`
      ${labelled(`${prefix}-url`, "URL", textField(`${prefix}-url`, "url", entry.url, "http://gpu-1:8000/v1"))}
      ${labelled(`${prefix}-weight`, "Weight", numberField(`${prefix}-weight`, "weight", entry.weight ?? 1), "Its share of the conversations. 0: it keeps its own, and gets no new ones.")}
      <label class="check"><input type="checkbox" name="drain" .checked=${entry.drain === true} /> Drain: its conversations move to other servers</label>
      ${labelled(`${prefix}-models`, "Models", textField(`${prefix}-models`, "models", modelsText(entry.models), "all of its models; or names, or name = its own name, separated by commas"))}
      <div>
        <label for=${`${prefix}-key`}>API key of the server</label>
        <input dir="auto" id=${`${prefix}-key`} name="api_key" type="password" autocomplete="off" placeholder="as it is" />
      </div>
      ${labelled(
        `${prefix}-others`,
        "Others, as JSON",
        html`<textarea dir="auto" id=${`${prefix}-others`} name="others" class="code" rows="2" spellcheck="false" placeholder='{"dialect": "sglang"}' .value=${Object.keys(others).length === 0 ? "" : JSON.stringify(others)}></textarea>`,
      )}
    `;
  },
  read: (form, before) => {
    const [url, key, weight] = [text(form, "url"), text(form, "api_key"), text(form, "weight")];
    const models = modelsOf(text(form, "models"));
    const entry: Entry = {
      ...others(text(form, "others")),
      ...(url !== "" && { url }),
      ...(weight !== "" && { weight: Number(weight) }),
      drain: form.get("drain") !== null,
      ...(models && { models }),
      ...(key !== "" && { api_key: key }),
    };
    // An empty field does not change its value.
    const isSame = (name: string) => JSON.stringify(entry[name]) === JSON.stringify(before[name]);
    const changed = Object.entries(entry).filter(([name]) => !isSame(name));
    return Object.fromEntries(changed.filter(([name, value]) => name !== "drain" || value || before.drain));
  },
};

function others(json: string): Entry {
  if (json === "") return {};
  try {
    const read = JSON.parse(json);
    if (typeof read === "object" && read !== null && !Array.isArray(read)) return read;
  } catch {
    // Said below.
  }
  throw new Error("The other fields are not a JSON object.");
}

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
  summary: (entry) => {
    const { to, fallbacks, context_window_fallbacks: wider } = typeof entry === "string" ? { to: entry } : entry;
    return [
      to === undefined ? "the model of its name" : targetsText(to),
      ...(fallbacks ? [`else ${fallbacks.join(", ")}`] : []),
      ...(wider ? [`for long prompts ${wider.join(", ")}`] : []),
    ].join(" · ");
  },
  fields: (entry, prefix) => {
    const { to, fallbacks, context_window_fallbacks: wider } = typeof entry === "string" ? { to: entry } : entry;
    return html`
      ${labelled(`${prefix}-to`, "Models", textField(`${prefix}-to`, "to", targetsText(to), "qwen3 95, qwen3-new 5"), "One, or several with their shares of the conversations. Default: the name itself.")}
      ${labelled(`${prefix}-fallbacks`, "In its place", textField(`${prefix}-fallbacks`, "fallbacks", fallbacks?.join(", ")), "Names that answer if no server of the model is healthy, or a request has failed before any output.")}
      ${labelled(`${prefix}-wider`, "For long prompts", textField(`${prefix}-wider`, "wider", wider?.join(", ")), "Names that answer if the prompt is longer than the context window.")}
    `;
  },
  read: (form) => {
    const to = listed(text(form, "to")).map((part) => {
      const [, model = part, weight] = /^(.*\S)\s+([\d.]+)$/.exec(part) ?? [];
      return { model, ...(weight !== undefined && { weight: Number(weight) }) };
    });
    const [fallbacks, wider] = [listed(text(form, "fallbacks")), listed(text(form, "wider"))];
    return {
      ...(to.length > 0 && { to }),
      ...(fallbacks.length > 0 && { fallbacks }),
      ...(wider.length > 0 && { context_window_fallbacks: wider }),
    };
  },
};

const prices: Kind = {
  title: "Prices",
  one: "price",
  name: "Model, or * for all others",
  summary: ({ input, cached_input: cached, output }) =>
    `input $${input}${cached === undefined ? "" : `, cached $${cached}`}, output $${output} for a million tokens`,
  fields: ({ input, cached_input: cached, output }, prefix) => html`
    ${labelled(`${prefix}-input`, "Input, dollars for a million tokens", numberField(`${prefix}-input`, "input", input))}
    ${labelled(`${prefix}-cached`, "Cached input", numberField(`${prefix}-cached`, "cached", cached))}
    ${labelled(`${prefix}-output`, "Output", numberField(`${prefix}-output`, "output", output))}
  `,
  read: (form) => {
    const cached = text(form, "cached");
    return {
      input: Number(text(form, "input")),
      ...(cached !== "" && { cached_input: Number(cached) }),
      output: Number(text(form, "output")),
    };
  },
};

/** The kinds by the API's names. */
export type KindName = "upstreams" | "routes" | "model_prices";
export const KINDS = { upstreams: servers, routes, model_prices: prices };

/**
 * The effective entries of a kind, by name. Aliases and fallbacks that have a variable of their own count as routes.
 */
export function entriesOf(kind: string, values: Record<string, ApiObject | undefined>): Record<string, Entry> {
  if (kind !== "routes") return values[kind] ?? {};
  const all: Record<string, Entry> = {};
  for (const [name, to] of Object.entries(values.model_aliases ?? {})) all[name] = { to };
  for (const [name, fallbacks] of Object.entries(values.model_fallbacks ?? {})) all[name] = { ...all[name], fallbacks };
  return { ...all, ...values.routes };
}
