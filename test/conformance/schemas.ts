/**
 * JSON Schemas of the Responses API, generated from the types of the installed `openai` package. So the wire is checked
 * against the types of OpenAI's own client, and no foreign file is committed.
 */
import { createHash, randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import { isObject, type JsonObject, show } from "./violations.ts";

const require = createRequire(import.meta.url);
const SCHEMA_ID = "openai";
const TSCONFIG_PATH = fileURLToPath(new URL("../tsconfig.json", import.meta.url));
const CACHE_DIRECTORY = new URL("../../node_modules/.cache/responses-edge/", import.meta.url);

/** A union reachable from `roots.ts` whose members are told apart by `type`. */
export type Union = "ResponseStreamEvent" | "ResponseOutputItem" | "ResponseItem" | "ConversationItem";

/** A type reachable from `roots.ts` that is one object. */
export type Root =
  | "CompactedResponse"
  | "Conversation"
  | "ConversationDeletedResource"
  | "ConversationItemList"
  | "InputTokenCountResponse"
  | "Response"
  | "ResponseItemList";

/** Codes of `response.error` that OpenAI sends and clients act on (reference §1.6, §4.4) but the types do not name. */
const UNTYPED_ERROR_CODES = [
  "context_length_exceeded",
  "cyber_policy",
  "insufficient_quota",
  "server_is_overloaded",
  "slow_down",
  "usage_not_included",
];

/** Keys that are on the wire, but not in the type of the event. */
const UNTYPED_EVENT_KEYS: Record<string, readonly string[]> = {
  // Required by the OpenAPI document and read by Cline.
  "response.function_call_arguments.done": ["name"],
  // Live errors are nested; the flat form is the typed one. We send both.
  error: ["error"],
};

interface Catalog {
  readonly ajv: Ajv;
  /** The compiled checks by definition. Each is compiled at its first use. */
  readonly checks: Map<string, ValidateFunction>;
  /** The possible keys of an event, by its type. */
  readonly eventKeys: Map<string, ReadonlySet<string>>;
  readonly definitions: Record<string, JsonObject>;
  readonly unions: Map<Union, Map<string, string[]>>;
}

let catalog: Catalog | undefined;

/** Files here with an interface `Roots`, from whose members schemas are made. */
const ROOTS = ["roots", "request-roots", "beta-request-roots", "platform-request-roots"] as const;
type RequestRoots = Exclude<(typeof ROOTS)[number], "roots">;

/** Generates the schemas of the installed `openai` package, unless that was done before. */
export function prepareSchemas(): void {
  for (const roots of ROOTS) readOrGenerate(roots);
}

/** The bodies of requests, by the names in these files, with the definitions that they refer to. */
export function requestSchemas(
  files: readonly RequestRoots[],
): { body: string; schema: JsonObject; definitions: Record<string, JsonObject> }[] {
  return files.flatMap((roots) => {
    const definitions = objectsIn(readOrGenerate(roots).definitions);
    const bodies = Object.entries(objectsIn(definition(definitions, "Roots").properties));
    return bodies.map(([body, schema]) => ({ body, schema, definitions }));
  });
}

/** The violations of the named type in the shape of `value`; empty when it fits. */
export function shapeViolations(definition: Root, value: unknown): string[] {
  return validate(definition, value);
}

/** Item types of OpenAI's beta, which the other types of its client do not know. */
const BETA_ITEMS: ReadonlySet<string> = new Set(["multi_agent_call", "multi_agent_call_output", "agent_message"]);

/** Tells whether a violation is only that an item has a type of the beta. */
function isOfBeta(violation: string): boolean {
  return BETA_ITEMS.has(/must be in oneOf "(\w+)"$/.exec(violation)?.[1] ?? "");
}

/** The violations in the shape of a member of a union, chosen by its `type` (and, for messages, its `role`). */
export function memberViolations(union: Union, value: unknown): string[] {
  if (!isObject(value) || typeof value.type !== "string") return [`is not an object with a type: ${show(value)}`];
  if (BETA_ITEMS.has(value.type)) return [];
  const candidates = load().unions.get(union)?.get(value.type) ?? [];
  if (candidates.length === 0) return [`has unknown type ${show(value.type)}`];
  const attempts = candidates.map((definition) => validate(definition, value));
  // The candidate with the fewest violations is the intended one.
  return attempts.reduce((best, next) => (next.length < best.length ? next : best));
}

/** The violations in the shape of a stream event: of its schema, and keys that neither OpenAI nor its clients know. */
export function eventViolations(event: unknown): string[] {
  const violations = memberViolations("ResponseStreamEvent", event);
  if (!isObject(event) || typeof event.type !== "string") return violations;
  const known = keysOf(event.type);
  if (known === undefined) return violations;
  for (const key of Object.keys(event)) if (!known.has(key)) violations.push(`has unknown key ${show(key)}`);
  return violations;
}

/** The keys that an event of this type may have; undefined for a type that is not known. */
function keysOf(type: string): ReadonlySet<string> | undefined {
  const { unions, definitions, eventKeys } = load();
  const before = eventKeys.get(type);
  if (before !== undefined) return before;
  const definition = unions.get("ResponseStreamEvent")?.get(type)?.[0];
  if (definition === undefined) return undefined;
  const properties = definitions[definition]?.properties;
  const keys = new Set([
    ...Object.keys(isObject(properties) ? properties : {}),
    ...(UNTYPED_EVENT_KEYS[type] ?? []),
    "obfuscation",
    "stream_id",
    // Of the beta, with agents.
    "agent",
  ]);
  eventKeys.set(type, keys);
  return keys;
}

/** Every event type of the installed `openai` package. */
export function knownEventTypes(): string[] {
  return [...(load().unions.get("ResponseStreamEvent")?.keys() ?? [])];
}

function validate(definition: string, value: unknown): string[] {
  const { ajv, checks } = load();
  const check = checks.get(definition) ?? ajv.getSchema(`${SCHEMA_ID}#/definitions/${encodeURIComponent(definition)}`);
  if (check === undefined) throw new Error(`roots.ts leads to no type ${definition}`);
  checks.set(definition, check);
  check(value);
  return (check.errors ?? []).map(describe).filter((violation) => !isOfBeta(violation));
}

function describe(error: ErrorObject): string {
  const { allowedValue, allowedValues, tagValue } = error.params;
  const detail = allowedValue ?? allowedValues ?? tagValue;
  const place = error.instancePath === "" ? "" : `${error.instancePath} `;
  return `${place}${error.message ?? error.keyword}${detail === undefined ? "" : ` ${show(detail)}`}`;
}

function load(): Catalog {
  catalog ??= compile(readOrGenerate("roots"));
  return catalog;
}

function readOrGenerate(roots: (typeof ROOTS)[number]): JsonObject {
  const path = fileURLToPath(new URL(`./${roots}.ts`, import.meta.url));
  const key = createHash("sha256").update(readFileSync(path)).digest("hex").slice(0, 16);
  const file = fileURLToPath(new URL(`openai-${installedVersion("openai")}-${key}.json`, CACHE_DIRECTORY));
  try {
    return parseObject(readFileSync(file, "utf8"));
  } catch {
    const generated = JSON.stringify(generate(path));
    mkdirSync(CACHE_DIRECTORY, { recursive: true });
    // Several test workers may run this at once: each writes its own file, and the rename is atomic.
    const temporary = `${file}.${randomUUID()}`;
    writeFileSync(temporary, generated);
    renameSync(temporary, file);
    return parseObject(generated);
  }
}

function generate(path: string): unknown {
  // Loaded only when the cache is cold: it brings a whole TypeScript compiler.
  const generator: typeof import("ts-json-schema-generator") = require("ts-json-schema-generator");
  return generator
    .createGenerator({
      path,
      tsconfig: TSCONFIG_PATH,
      type: "Roots",
      skipTypeCheck: true,
      additionalProperties: true,
      jsDoc: "none",
    })
    .createSchema("Roots");
}

function compile(schema: JsonObject): Catalog {
  const definitions = objectsIn(schema.definitions);
  const names: Union[] = ["ResponseStreamEvent", "ResponseOutputItem", "ResponseItem", "ConversationItem"];
  const unions = new Map(names.map((name) => [name, membersByType(definitions, name)]));
  patch(definitions);
  discriminate(definitions, definitions);
  // Each process of a test run compiles: with ajv's optimizer that takes half as long again as without. Checks of
  // definitions that are not inlined, each once, take a quarter less, and the generator's schemas are valid.
  const code = { optimize: false };
  const quick = { inlineRefs: false, validateSchema: false, meta: false, code };
  const ajv = new Ajv({ strict: false, allErrors: true, discriminator: true, validateFormats: false, ...quick });
  ajv.addSchema({ $id: SCHEMA_ID, definitions });
  return { ajv, checks: new Map(), eventKeys: new Map(), definitions, unions };
}

/** Changes the types where they differ from the wire (reference §3). */
function patch(definitions: Record<string, JsonObject>): void {
  const response = definition(definitions, "Response");
  // `output_text` exists only in the SDK.
  response.required = listIn(response.required).filter((key) => key !== "output_text");
  const properties = objectsIn(response.properties);
  for (const key of ["usage", "user"]) properties[key] = { anyOf: [properties[key], { type: "null" }] };
  response.properties = properties;

  const code = objectsIn(definition(definitions, "ResponseError").properties).code;
  if (code !== undefined) code.enum = [...listIn(code.enum), ...UNTYPED_ERROR_CODES];

  // It contains the user's messages, which are no output anywhere else, so its items are checked one by one.
  const compacted = objectsIn(definition(definitions, "CompactedResponse").properties);
  if (compacted.output !== undefined) compacted.output.items = { type: "object" };

  for (const name of ["ResponseItemList", "ConversationItemList"]) {
    const list = objectsIn(definition(definitions, name).properties);
    // The items are checked one by one; an empty page has no first and no last id.
    if (list.data !== undefined) list.data.items = { type: "object" };
    for (const key of ["first_id", "last_id"]) if (list[key] !== undefined) list[key].type = ["string", "null"];
  }
}

/** Turns unions that `type` distinguishes into discriminated ones, so that an error names the intended member. */
function discriminate(node: unknown, definitions: Record<string, JsonObject>): void {
  if (Array.isArray(node)) for (const child of node) discriminate(child, definitions);
  if (!isObject(node)) return;
  for (const child of Object.values(node)) discriminate(child, definitions);
  if (!Array.isArray(node.anyOf)) return;
  const types = node.anyOf.map((branch) => typesOf(resolve(definitions, branch)));
  const all = types.flat();
  if (types.some((own) => own.length === 0) || new Set(all).size < all.length) return;
  node.type = "object";
  node.required = ["type"];
  node.discriminator = { propertyName: "type" };
  node.oneOf = node.anyOf;
  delete node.anyOf;
}

function membersByType(definitions: Record<string, JsonObject>, union: string): Map<string, string[]> {
  const members = new Map<string, string[]>();
  for (const branch of listIn(definition(definitions, union).anyOf)) {
    const name = referenceName(branch);
    for (const type of typesOf(definitions[name])) members.set(type, [...(members.get(type) ?? []), name]);
  }
  return members;
}

/** The values a definition's required `type` may have. */
function typesOf(node: JsonObject | undefined): string[] {
  if (node === undefined || !listIn(node.required).includes("type")) return [];
  const type = objectsIn(node.properties).type;
  return [type?.const, ...listIn(type?.enum)].filter((value) => typeof value === "string");
}

function resolve(definitions: Record<string, JsonObject>, branch: unknown): JsonObject | undefined {
  return definitions[referenceName(branch)];
}

function referenceName(branch: unknown): string {
  if (!isObject(branch) || typeof branch.$ref !== "string") return "";
  return decodeURIComponent(branch.$ref.replace("#/definitions/", ""));
}

function definition(definitions: Record<string, JsonObject>, name: string): JsonObject {
  const found = definitions[name];
  if (found === undefined) throw new Error(`openai ${installedVersion("openai")} has no type ${name}`);
  return found;
}

function objectsIn(value: unknown): Record<string, JsonObject> {
  if (!isObject(value)) return {};
  return Object.fromEntries(Object.entries(value).filter((entry): entry is [string, JsonObject] => isObject(entry[1])));
}

function listIn(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function parseObject(text: string): JsonObject {
  const value: unknown = JSON.parse(text);
  if (!isObject(value)) throw new Error("not a JSON object");
  return value;
}

function installedVersion(name: string): string {
  const manifest = parseObject(
    readFileSync(new URL(`../../node_modules/${name}/package.json`, import.meta.url), "utf8"),
  );
  return String(manifest.version);
}
