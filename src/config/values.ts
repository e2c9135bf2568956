import { Buffer } from "node:buffer";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { allowList } from "@responses-edge/outgoing-fetch/guarded";
import { z } from "zod";

/**
 * Schemas of formats that several variables share. In the file of `CONFIG_FILE` their values are numbers, lists and so
 * on: `describedAs`.
 */

/** The longest delay of a timer, in milliseconds: a timer with a longer one fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A whole number. One function checks it: a schema for each rule of each variable would take a tenth of the start. */
export function integer(fallback: number, minimum: number, maximum = Number.MAX_SAFE_INTEGER) {
  return describedAs(
    z
      .string()
      .transform((text, context) => {
        const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
        if (value >= minimum && value <= maximum) return value;
        const bound = value < minimum ? `at least ${minimum}` : `at most ${maximum}`;
        const wanted = Number.isNaN(value) ? "a whole number" : bound;
        context.addIssue({ code: "custom", message: `expected ${wanted}` });
        return z.NEVER;
      })
      .default(fallback),
    () => z.int().min(minimum).max(maximum).default(fallback),
  );
}

/** A duration in milliseconds, which a timer can wait. */
export function milliseconds(fallback: number, minimum: number, maximum = MAX_TIMER_MS) {
  return integer(fallback, minimum, maximum);
}

const DAY_MS = 86_400_000;

/** A hundred years, so that now plus this time is a valid date. */
const MAX_DAYS = 36_500;

/** Whole days, as milliseconds. */
export function days(fallback: number, minimum: number) {
  const count = integer(fallback, minimum, MAX_DAYS);
  return count.transform((given) => given * DAY_MS);
}

/** `true` or `false`; `false` by default. */
export const flag = describedAs(z.enum(["true", "false"]).default("false"), () => z.boolean().default(false)).transform(
  (value) => value === "true",
);

/** A share, from 0 to 1. */
export function ratio(fallback = 1) {
  return describedAs(
    z
      .string()
      .transform((text, context) => {
        const value = Number(text);
        if (/^\s*(0|1|0?\.\d+|[01]\.\d*)\s*$/.test(text) && value <= 1) return value;
        context.addIssue({ code: "custom", message: "expected a number from 0 to 1" });
        return z.NEVER;
      })
      .default(fallback),
    () => z.number().min(0).max(1).default(fallback),
  );
}

/** The entries of a text, separated by commas or white space. */
export function listed(text: string): string[] {
  return text.split(/[\s,]+/).filter((entry) => entry !== "");
}

/** The text of a list ({@link listed}), which is a JSON list in the file. */
export function listText(entry: z.ZodType<string> = z.string()) {
  return describedAs(z.string(), () => z.union([z.string(), z.array(entry)]));
}

/** Some of several names, or `all` or `none`. */
export function someOf<const Name extends string>(names: readonly [Name, ...Name[]]) {
  return listText(z.enum(["all", "none", ...names]))
    .transform(listed)
    .pipe(
      z.union(
        [z.tuple([z.enum(["all", "none"])]), z.array(z.enum(names))],
        `expected 'all', 'none', or some of ${names.join(", ")}`,
      ),
    );
}

/** The set that a text of {@link someOf} names. */
export function setOf<const Name extends string>(names: readonly Name[]) {
  return (given: readonly string[]): ReadonlySet<Name> =>
    new Set(names.filter((name) => given[0] === "all" || given.includes(name)));
}

/** A JSON object whose values a schema reads; empty by default. The mistake shows the `example`. */
export function jsonMap<Value extends z.ZodType>(value: Value, example: string) {
  return jsonText("object", example, () => z.record(z.string(), value))
    .pipe(z.record(z.string().min(1), value))
    .default({});
}

/** A JSON list whose entries a schema reads; empty by default. The mistake shows the `example`. */
export function jsonList<Entry extends z.ZodType>(entry: Entry, example: string) {
  return jsonText("list", example, () => z.array(z.string()))
    .pipe(z.array(entry))
    .default([]);
}

function jsonText(kind: string, example: string, plain: () => z.ZodType) {
  return describedAs(z.string(), plain).transform((text, context) => {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      context.addIssue({ code: "custom", message: `expected a JSON ${kind} such as ${example}` });
      return z.NEVER;
    }
  });
}

/** A URL to call. It may have no user name, which cannot be sent, and no fragment, which never is. */
export const httpUrl = z
  .url({ protocol: /^https?$/, error: "expected a URL that begins with http:// or https://" })
  .refine((url) => !hasCredentials(url), "expected a URL without user name and password")
  .refine((url) => !url.includes("#"), "expected a URL without a fragment ('#')");

function hasCredentials(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username !== "" || password !== "";
}

/** The end of an endpoint's URL, which documentations show where a server's URL is asked for. */
const ENDPOINT_PATH =
  /\/(?:chat\/completions|completions|responses|embeddings|models|messages|rerank|score|tokenize|api\/(?:chat|generate))\/*$/;

/** The URL of a model server, to which paths are appended. */
export const serverUrl = httpUrl
  .refine((url) => !url.includes("?"), "expected a URL without a query: paths are put behind it")
  .refine(
    (url) => !ENDPOINT_PATH.test(url),
    "expected the URL of the server, such as http://gpu:8000/v1, and not that of an endpoint: its path is put behind it",
  );

/** The name of a model with a task of its own. */
export const modelName = z.string().trim().min(1).max(1_024, "expected the name of a model").optional();

/** A secret that is sent in a header, without the line break that a shell adds at its end. */
export const headerSecret = z
  .string()
  .trim()
  .regex(/^[\x21-\x7e]+$/, "expected visible ASCII characters without spaces: it is sent in a header");

/** Origins of pages, as browsers send them. */
export function origins() {
  return listText()
    .default("")
    .transform((given) => listed(given))
    .refine(
      (all) => all.every((each) => URL.parse(each)?.origin === each),
      "expected origins, such as https://app.example.com: exact, without a path, and no '*'",
    );
}

/** URL prefixes, as a predicate. Without any, no URL matches. */
export function urlPrefixes() {
  return listText()
    .transform((text, context) => {
      try {
        return allowList(text);
      } catch {
        context.addIssue({ code: "custom", message: "expected URLs separated by commas" });
        return z.NEVER;
      }
    })
    .optional()
    .transform((isListed) => isListed ?? (() => false));
}

/** In whole groups of four characters, the last one with or without its padding. */
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/;

/** The bytes of a text in base64; none if the text is invalid. */
export function fromBase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(BASE64.test(text) ? text : "", "base64"));
}

/** A list in OpenTelemetry's format. */
export const keyValues = z
  .string()
  .transform((text, context) => {
    const values = parseKeyValues(text);
    if (values) return values;
    context.addIssue({ code: "custom", message: "expected key=value,key=value with percent-encoded values" });
    return z.NEVER;
  })
  .optional();

/** The same, with names and values that are valid in headers. */
export const headerValues = keyValues.refine(
  (headers) =>
    [...(headers ?? [])].every(([name, value]) => /^[\w!#$%&'*+.^`|~-]+$/.test(name) && /^[\x20-\x7e]*$/.test(value)),
  "expected names and values of headers",
);

/**
 * The lists of OpenTelemetry's variables (`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`): `key=value`, separated by
 * commas, each part percent-encoded, as in W3C's Baggage without its properties. Undefined for an invalid list.
 */
export function parseKeyValues(text: string): ReadonlyMap<string, string> | undefined {
  const values = new Map<string, string>();
  for (const entry of text.split(",")) {
    if (entry.trim() === "") continue;
    const at = entry.indexOf("=");
    if (at < 0) return undefined;
    try {
      const key = decodeURIComponent(entry.slice(0, at).trim());
      if (key === "") return undefined;
      values.set(key, decodeURIComponent(entry.slice(at + 1).trim()));
    } catch {
      return undefined;
    }
  }
  return values;
}
