import { html, nothing } from "lit-html";
import { showButton } from "./form-events.ts";
import type { ApiObject, Parsed } from "./json.ts";

/** Fields of forms and of filters: they are declared, drawn with values, and read as values. */

/**
 * `list`: texts that commas separate. `lines`: texts, one a line. `others`: a JSON object with the values that no other
 * field has. `code`: JSON, of which the value is the text. `secret`: it is hidden until the user shows it. `time`: its
 * value is in UTC, as `2026-11-30T05:30:00Z`.
 */
type Kind =
  | ("text" | "url" | "secret" | "number" | "time" | "choice" | "check" | "checks")
  | ("list" | "lines" | "long" | "json" | "code" | "others");

export interface Field {
  /** The name of its value. A dot leads into an inner object: `budget.usd`. */
  name: string;
  label: string;
  /** Default: `text`. */
  kind?: Kind;
  /** The choices of `choice` and `checks`. */
  options?: readonly (readonly [value: string, label: string])[];
  placeholder?: string;
  note?: string;
  /** A text that a button puts into the empty field. */
  example?: string;
  /** Values that the user may choose instead of typing one. */
  suggestions?: readonly string[];
  isRequired?: boolean;
  min?: number;
  max?: number;
  /** `any` allows fractions. Default: 1. */
  step?: "any";
  maxLength?: number;
  /** A regular expression, and its meaning. */
  pattern?: readonly [expression: string, meaning: string];
}

/** Fields that are folded until the user opens them. */
export interface Step {
  title: string;
  fields: Form;
}

export type Form = readonly (Field | Step)[];

/** Kinds that need the whole width of a form. */
const WIDE: ReadonlySet<Kind> = new Set(["checks", "list", "lines", "long", "json", "code", "others"]);

/** Kinds that are written as code. */
const CODE: ReadonlySet<Kind> = new Set(["json", "code", "others"]);

/** A fault of a field, by its name. */
export type FieldFault = Pick<FormFault, "field" | "message">;

/** @param prefix starts the ids of the controls: a page may have several forms */
export function fieldsTemplate(form: Form, values: object = {}, prefix: string = "field", fault?: FieldFault) {
  const template = (each: Field | Step): unknown =>
    "fields" in each
      ? html`<details class="whole-width"><summary>${each.title}</summary><div class="fields">${each.fields.map(template)}</div></details>`
      : fieldTemplate(
          each,
          each.kind === "others" ? otherValues(form, values) : memberOf(values, each.name),
          `${prefix}-${each.name}`,
          fault?.field === each.name ? fault.message : "",
        );
  return html`<div class="fields">${form.map(template)}</div>`;
}

function fieldTemplate(field: Field, value: unknown, id: string, fault: string) {
  const { name, label, kind = "text", options = [], note, example } = field;
  if (kind === "check")
    return html`<div class="whole-width"><label class="check"><input id=${id} type="checkbox" name=${name} .checked=${value === true} /> ${label}</label> ${note ? html`<span class="note">${note}</span>` : nothing}</div>`;
  if (kind === "checks") {
    const given = (value as string[] | undefined) ?? [];
    return html`<fieldset class="whole-width"><legend>${label}</legend><div class="buttons max-h-56 gap-x-5 gap-y-1 overflow-y-auto p-0.5">
      ${options.map(([each, text]) => html`<label class="check"><input type="checkbox" name=${name} value=${each} .checked=${given.includes(each)} /> <bdi class="file-name">${text}</bdi></label>`)}
    </div></fieldset>`;
  }
  return html`<div class=${WIDE.has(kind) ? "whole-width" : ""}>
    <label for=${id}>${label}</label>
    ${controlTemplate(id, field, value, fault)}
    ${fault ? html`<p class="fault" dir="auto" id="${id}-fault" role="alert">${fault}</p>` : nothing}
    ${note ? html`<p class="note">${note}</p>` : nothing}
    ${example && !value ? html`<button type="button" class="plain" @click=${() => putIn(id, example)}>Put in an example</button>` : nothing}
  </div>`;
}

function putIn(id: string, text: string) {
  const control = document.getElementById(id) as HTMLTextAreaElement;
  control.value = text;
  control.dispatchEvent(new Event("input", { bubbles: true }));
}

function controlTemplate(id: string, field: Field, value: unknown, fault: string) {
  const { name, kind = "text", options = [], placeholder = "", isRequired = false } = field;
  const { min, max, step, maxLength, suggestions } = field;
  const text = textOf(kind, value);
  const attribute = (given: unknown) => given ?? nothing;
  switch (kind) {
    case "choice":
      return html`<select id=${id} name=${name} ?required=${isRequired}>${options.map(([each, label]) => html`<option value=${each} .selected=${each === text}>${label}</option>`)}</select>`;
    case "lines":
    case "long":
    case "json":
    case "code":
    case "others":
      return html`<textarea dir="auto" id=${id} name=${name} class=${CODE.has(kind) ? "code" : ""} rows="2" aria-invalid=${fault ? "true" : nothing} aria-describedby=${fault ? `${id}-fault` : nothing} spellcheck="false" placeholder=${placeholder} ?required=${isRequired} .value=${text}></textarea>`;
    case "number":
      return html`<input id=${id} name=${name} type="number" min=${min ?? 0} max=${attribute(max)} step=${attribute(step)} inputmode="decimal" placeholder=${placeholder} ?required=${isRequired} .value=${text} />`;
    case "time":
      return html`<input id=${id} name=${name} type="datetime-local" step="1" .value=${text} />`;
    case "secret":
      return html`<span class="flex items-center gap-1"><input dir="auto" id=${id} name=${name} type="password" autocomplete="off" spellcheck="false" placeholder=${placeholder} ?required=${isRequired} .value=${text} />${showButton()}</span>`;
    default:
      return html`<input dir="auto" id=${id} name=${name} type=${kind === "url" ? "url" : "text"} autocomplete="off" spellcheck="false" maxlength=${attribute(maxLength)} pattern=${attribute(field.pattern?.[0])} title=${attribute(field.pattern?.[1])} placeholder=${placeholder} ?required=${isRequired} list=${suggestions ? `${id}-list` : nothing} .value=${text} />
        ${suggestions ? html`<datalist id="${id}-list">${suggestions.map((each) => html`<option value=${each}></option>`)}</datalist>` : nothing}`;
  }
}

function textOf(kind: Kind, value: unknown) {
  if (value === undefined || value === null) return "";
  if (kind === "time") return localTime(new Date(String(value)));
  if (Array.isArray(value) && (kind === "list" || kind === "lines")) return value.join(kind === "list" ? ", " : "\n");
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

/** A moment as a control has it: in this browser's zone, to the second. */
function localTime(date: Date) {
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** A member of an object, or of an object in it. */
export function memberOf(values: ApiObject, name: string): unknown {
  const [first = "", inner] = name.split(".");
  return inner === undefined ? values[first] : values[first]?.[inner];
}

export function otherValues(form: Form, values: ApiObject): ApiObject | undefined {
  const known = new Set(fieldsIn(form).map(({ name }) => name.split(".")[0]));
  const others = Object.entries(values).filter(([name, value]) => !known.has(name) && value != null);
  return others.length === 0 ? undefined : Object.fromEntries(others);
}

export function fieldsIn(form: Form): Field[] {
  return form.flatMap((each) => ("fields" in each ? fieldsIn(each.fields) : each));
}

/**
 * The values in a form; empty fields have none. Throws a FormFault for invalid JSON. The server checks everything else.
 */
export function valuesIn(form: Form, data: FormData): ApiObject {
  const values: ApiObject = {};
  for (const field of fieldsIn(form)) {
    const value = valueIn(field, data);
    if (value === undefined) continue;
    const [first = "", inner] = field.name.split(".");
    if (field.kind === "others") Object.assign(values, value);
    else values[first] = inner === undefined ? value : { ...values[first], [inner]: value };
  }
  return values;
}

function valueIn(field: Field, data: FormData): unknown {
  const { name, kind = "text" } = field;
  if (kind === "check") return data.get(name) === null ? undefined : true;
  if (kind === "checks") return data.getAll(name).map(String);
  const text = String(data.get(name) ?? "").trim();
  if (text === "") return undefined;
  if (kind === "number") return Number(text);
  if (kind === "time") return new Date(text).toISOString().replace(".000", "");
  if (kind === "list" || kind === "lines") {
    const parts = text.split(kind === "list" ? /[,\n]/ : "\n").map((part) => part.trim());
    return parts.filter((part) => part !== "");
  }
  return kind === "json" || kind === "others" ? jsonIn(text, field, kind === "others") : text;
}

/** A field that has an invalid value. */
export class FormFault extends Error {
  field: string;

  /** @param field its name */
  constructor(field: string, message: string) {
    super(message);
    this.name = "FormFault";
    this.field = field;
  }
}

/** The JSON in a field. Throws a FormFault. `isObject`: no other JSON is valid. */
export function jsonIn(text: string, { name, label }: Field, isObject = false): Parsed {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new FormFault(name, `${label}: this is no JSON: ${(error as Error).message}`);
  }
  if (isObject && (typeof value !== "object" || value === null || Array.isArray(value)))
    throw new FormFault(name, `${label}: this is not a JSON object.`);
  return value;
}
