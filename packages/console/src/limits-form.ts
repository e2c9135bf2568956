import { html } from "lit-html";
import type { ApiObject } from "./json.ts";

/**
 * The limits of a key or a tenant, as fields of a form. Common limits have a field each, all others are edited as JSON.
 * In the API's form (docs/keys.md)
 */
export type Limits = ApiObject;

const NUMBERS: [name: string, label: string][] = [
  ["requests_per_minute", "Requests per minute"],
  ["reads_per_minute", "Reads per minute"],
  ["tokens_per_minute", "Tokens per minute"],
  ["end_user.requests_per_minute", "Requests per minute of each end user"],
  ["end_user.tokens_per_minute", "Tokens per minute of each end user"],
  ["max_concurrent_requests", "Requests at a time"],
  ["max_background_runs", "Background runs at a time"],
  ["max_output_tokens", "Output tokens of a response"],
  ["stored_bytes", "Stored bytes"],
  ["stored_responses", "Stored responses"],
  ["stored_conversations", "Stored conversations"],
  ["stored_files", "Stored files"],
  ["stored_file_bytes", "Stored bytes of files"],
];

const SWITCHES: [name: string, label: string][] = [
  ["log_content", "Log contents to the operator's sink"],
  ["track_homes", "Note homes, for export and erasure"],
  ["force_store_false", "Store nothing"],
];

const WINDOWS = ["hour", "day", "week", "month", "total"];

const NAMED = new Set([...NUMBERS, ...SWITCHES].map(([name]) => name).concat("models", "budget", "end_user"));

/** @param prefix starts the ids of the fields: a page may have several of these forms */
export function limitsFields(limits: Limits | null, prefix: string) {
  const given = limits ?? {};
  const others = Object.entries(given).filter(([name, value]) => !NAMED.has(name) && value != null);
  const field = (name: string, label: string, value: unknown, step = "1") =>
    html`<div>
      <label for=${`${prefix}-${name}`}>${label}</label>
      <input id=${`${prefix}-${name}`} name=${name} type="number" min="0" step=${step} inputmode="decimal" placeholder="no limit" .value=${value == null ? "" : String(value)} />
    </div>`;
  return html`
    <div class="fields">
      ${NUMBERS.map(([name, label]) => field(name, label, valueIn(given, name)))}
      ${field("budget.tokens", "Budget in tokens", given.budget?.tokens)} ${field("budget.usd", "Budget in US dollars", given.budget?.usd, "any")}
      <div>
        <label for=${`${prefix}-window`}>Budget begins anew</label>
        <select id=${`${prefix}-window`} name="budget.window">
          ${WINDOWS.map((window) => html`<option value=${window} ?selected=${window === (given.budget?.window ?? "month")}>${window === "total" ? "never" : `each ${window}`}</option>`)}
        </select>
      </div>
    </div>
    <div>
      <label for=${`${prefix}-models`}>Models</label>
      <input dir="auto" id=${`${prefix}-models`} name="models" autocomplete="off" spellcheck="false" placeholder="all; or names, or beginnings such as qwen*, separated by commas" .value=${(given.models ?? []).join(", ")} />
    </div>
    <div class="checks">
      ${SWITCHES.map(([name, label]) => html`<label class="check"><input type="checkbox" name=${name} .checked=${given[name] === true} /> ${label}</label> `)}
    </div>
    <div>
      <label for=${`${prefix}-others`}>Others, as JSON</label>
      <textarea dir="auto" id=${`${prefix}-others`} name="others" class="code" spellcheck="false" placeholder='{"hosted_tools": ["web_search"], "tier": "gold"}' .value=${others.length === 0 ? "" : JSON.stringify(Object.fromEntries(others), null, 2)}></textarea>
    </div>
  `;
}

/**
 * The limits in a form; null where it has none. Throws an Error that says what cannot be read. The server says what cannot be meant.
 */
export function limitsOf(form: FormData): Limits | null {
  const limits: Limits = readOthers(text(form, "others"));
  for (const [name] of NUMBERS) {
    const [first = "", inner] = name.split(".");
    if (text(form, name) === "") continue;
    const value = Number(text(form, name));
    limits[first] = inner === undefined ? value : { ...limits[first], [inner]: value };
  }
  for (const [name] of SWITCHES) if (form.get(name) !== null) limits[name] = true;
  const models = text(form, "models")
    .split(",")
    .map((model) => model.trim());
  if (models.some((model) => model !== "")) limits.models = models.filter((model) => model !== "");
  const [tokens, usd] = [text(form, "budget.tokens"), text(form, "budget.usd")];
  if (tokens !== "" || usd !== "") {
    limits.budget = {
      ...(tokens !== "" && { tokens: Number(tokens) }),
      ...(usd !== "" && { usd: Number(usd) }),
      window: text(form, "budget.window"),
    };
  }
  return Object.keys(limits).length === 0 ? null : limits;
}

/**
 * The value of a field that may be in another one.
 * @param name such as `end_user.tokens_per_minute`
 */
function valueIn(limits: Limits, name: string) {
  const [first = "", inner] = name.split(".");
  return inner === undefined ? limits[first] : limits[first]?.[inner];
}

function text(form: FormData, name: string) {
  return String(form.get(name) ?? "").trim();
}

function readOthers(json: string): Limits {
  if (json === "") return {};
  try {
    const read = JSON.parse(json);
    if (typeof read === "object" && read !== null && !Array.isArray(read)) return read;
  } catch {
    // Said below.
  }
  throw new Error("The other limits are not a JSON object.");
}

/** Limits in a line. */
export function limitsInWords(limits: Limits | null) {
  const words = Object.entries(limits ?? {})
    .filter(([, value]) => value != null)
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${inWords(value)}`);
  return words.length === 0 ? "none" : words.join(" · ");
}

function inWords(value: unknown): string {
  if (value === true) return "yes";
  if (Array.isArray(value)) return value.join(", ") || "nothing";
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value)
    .filter(([, each]) => each != null)
    .map(([name, each]) => (name === "window" ? `each ${each}` : `${each} ${name.replaceAll("_", " ")}`))
    .join(" ");
}
