import { createHash } from "node:crypto";
import { requestSchemas } from "./schemas.ts";
import { isObject, type JsonObject } from "./violations.ts";

/** Every field that the types of the installed `openai` package let a request have, with bodies that have it and a body that does not. */

export interface RequestField {
  /**
   * Its path of names, as `tools<mcp>.headers` or `prompt_cache_options.ttl`. `tools<mcp>` alone stands for an object
   * of one of several types.
   */
  name: string;
  /** The body that contains it, by its name in its file of roots. */
  body: string;
  /** The names of the objects that contain it, outermost first. */
  within: readonly string[];
  /** The path from the body to it. */
  path: readonly (string | number)[];
  /** A body without it, or with another value if it is required. Empty for an object of one of several types. */
  without: JsonObject;
  /** Bodies that contain it, one for each value or alternative. */
  with: readonly { value: unknown; body: JsonObject }[];
  /** A body in which it is null, where its type allows that. */
  nulled?: JsonObject;
}

/** Values to send, by a field's full or last name. The first one is used wherever a field is required. */
export type Samples = Readonly<Record<string, readonly unknown[]>>;

/** A place in a body, and the function that makes a body with a value there. */
interface Place {
  body: string;
  name: string;
  within: readonly string[];
  path: readonly (string | number)[];
  put(value: unknown): JsonObject;
}

/** The bodies of responses and conversations, and those of all other endpoints. */
const FILES = {
  responses: ["request-roots", "beta-request-roots"],
  platform: ["platform-request-roots"],
} as const;

/**
 * All fields, each once: a field with the same schema in several places is taken from the first. `nullable`: those that
 * may be null.
 */
export function requestFields(
  samples: Samples,
  which: keyof typeof FILES = "responses",
): { fields: RequestField[]; nullable: RequestField[] } {
  const fields = new Map<string, RequestField>();
  const nullable = new Map<string, RequestField>();
  for (const { body, schema, definitions } of requestSchemas(FILES[which])) {
    const reader = new Reader(definitions, samples, { fields, nullable });
    reader.read(schema, { body, name: "", within: [], path: [], put: (value) => value as JsonObject }, []);
  }
  return { fields: [...fields.values()], nullable: [...nullable.values()] };
}

/** Bodies whose fields have no other name before theirs. */
const CREATES = ["create", "beta_create"];

class Reader {
  readonly #definitions: Record<string, JsonObject>;
  readonly #samples: Samples;
  readonly #found: Record<"fields" | "nullable", Map<string, RequestField>>;

  constructor(
    definitions: Record<string, JsonObject>,
    samples: Samples,
    found: Record<"fields" | "nullable", Map<string, RequestField>>,
  ) {
    this.#definitions = definitions;
    this.#samples = samples;
    this.#found = found;
  }

  /** Notes the fields of a schema's objects, also of nested ones. `around`: the definitions that contain it. */
  read(schema: unknown, place: Place, around: readonly string[]): void {
    for (const { name, node } of this.#branches(schema)) {
      if (name !== undefined && around.includes(name)) continue;
      const inner = name === undefined ? around : [...around, name];
      if (node.items !== undefined) {
        this.read(node.items, { ...place, path: [...place.path, 0], put: (value) => place.put([value]) }, inner);
      } else if (isObject(node.properties)) this.#readObject(node, place, inner);
    }
  }

  #readObject(node: JsonObject, place: Place, around: readonly string[]): void {
    const type = typeOf(node);
    const own = type === undefined ? place.name : `${place.name}<${type}>`;
    const base = this.#minimal(node, place.name) as JsonObject;
    const { body, path } = place;
    if (type !== undefined) {
      this.#note(own, { ...place, name: own, without: {}, with: [{ value: base, body: place.put(base) }] });
    }
    const required = new Set(Array.isArray(node.required) ? node.required : []);
    const within = [...place.within, ...(own === "" ? [] : [own])];
    // Items may contain tools, too, but not all are supported there. So tools are taken from the request's own list
    // first.
    const properties = Object.entries(node.properties as JsonObject);
    for (const [key, schema] of properties.toSorted(
      ([one], [other]) => Number(other === "tools") - Number(one === "tools"),
    )) {
      if (key === "type" && type !== undefined) continue;
      const name = own !== "" ? `${own}.${key}` : CREATES.includes(body) ? key : `${body}.${key}`;
      const put = (value: unknown) => place.put({ ...base, [key]: value });
      const values = this.#values(schema, name).filter((value) => !required.has(key) || !isSame(value, base[key]));
      const field = { name, body, within, path: [...path, key], without: place.put(base) };
      const bodies = values.map((value) => ({ value, body: put(value) }));
      const print = this.#print(schema, []);
      if (this.#mayBeNull(schema)) {
        const key = `${name} ${print}`;
        const nulled = { ...field, with: [], nulled: put(null) };
        if (!this.#found.nullable.has(key)) this.#found.nullable.set(key, nulled);
      }
      if (this.#isListOfWords(schema)) {
        for (const each of bodies) {
          const [word] = each.value as string[];
          this.#note(`${name}=${word}`, { ...field, name: `${name}=${word}`, with: [each] });
        }
      } else if (bodies.length > 0) this.#note(`${name} ${print}`, { ...field, with: bodies });
      const inner = { body, name: key === "items" ? "input" : key, within: [...within, name], path: field.path, put };
      this.read(schema, inner, around);
    }
  }

  /** True for a list of enum values, each of which requests something else. */
  #isListOfWords(schema: unknown): boolean {
    return this.#branches(schema).some(
      ({ node }) =>
        node.items !== undefined && this.#branches(node.items).every((each) => Array.isArray(each.node.enum)),
    );
  }

  #mayBeNull(schema: unknown): boolean {
    return this.#branches(schema).some(
      ({ node }) =>
        node.type === "null" || node.const === null || (Array.isArray(node.enum) && node.enum.includes(null)),
    );
  }

  #note(key: string, { name, body, within, path, without, with: bodies }: RequestField): void {
    const { fields } = this.#found;
    if (!fields.has(key)) fields.set(key, { name, body, within, path, without, with: bodies });
  }

  /** A value of each kind that a schema allows, except null, which means the same as absence. */
  #values(schema: unknown, name: string): unknown[] {
    const given = this.#sampleOf(name);
    if (given) return [...given];
    return this.#branches(schema).flatMap(({ node }): unknown[] => {
      if (Array.isArray(node.enum)) return node.enum.filter((value) => value !== null);
      if ("const" in node) return [node.const];
      if (node.items !== undefined) return this.#values(node.items, name).map((value) => [value]);
      // The members of an object are fields themselves.
      if (isObject(node.properties)) return [];
      if (node.type === "boolean") return [true, false];
      if (node.type === "number") return [2];
      if (node.type === "string") return ["y"];
      return node.type === "null" ? [] : [this.#minimal(node, name)];
    });
  }

  /** The smallest value that a schema allows. `name` is the field's. */
  #minimal(schema: unknown, name: string): unknown {
    const first = this.#branches(schema).find(({ node }) => node.type !== "null")?.node ?? {};
    if (isObject(first.properties)) {
      const { properties } = first;
      const type = typeOf(first);
      const own = type === undefined ? lastOf(name) : `${lastOf(name)}<${type}>`;
      const keys = Array.isArray(first.required) ? (first.required as string[]) : [];
      const entries = keys.map((key) => [key, this.#minimal(properties[key], own === "" ? key : `${own}.${key}`)]);
      return { ...Object.fromEntries(entries), ...(this.#samples[own]?.[0] as object | undefined) };
    }
    const given = this.#sampleOf(name)?.[0];
    if (given !== undefined) return given;
    if (Array.isArray(first.enum)) return first.enum[0];
    if ("const" in first) return first.const;
    if (first.items !== undefined) return [this.#minimal(first.items, name)];
    if (first.type === "boolean") return true;
    if (first.type === "number") return 1;
    return first.type === "object" ? {} : "x";
  }

  #sampleOf(name: string): readonly unknown[] | undefined {
    return this.#samples[name] ?? this.#samples[lastOf(name)];
  }

  /** The alternatives of a schema, each with the name of its definition. */
  #branches(schema: unknown): { name: string | undefined; node: JsonObject }[] {
    if (!isObject(schema)) return [];
    if (typeof schema.$ref === "string") {
      const name = decodeURIComponent(schema.$ref.replace("#/definitions/", ""));
      return this.#branches(this.#definitions[name]).map((branch) => ({ ...branch, name: branch.name ?? name }));
    }
    if (Array.isArray(schema.anyOf)) return schema.anyOf.flatMap((branch) => this.#branches(branch));
    if (Array.isArray(schema.type)) return schema.type.map((type) => ({ name: undefined, node: { ...schema, type } }));
    return [{ name: undefined, node: schema }];
  }

  /** A text that is equal for equal schemas of fields with one name, whatever the names of their definitions. */
  #print(schema: unknown, around: readonly string[]): string {
    const parts = this.#branches(schema).map(({ name, node }) => {
      if (name !== undefined && around.includes(name)) return "…";
      const inner = name === undefined ? around : [...around, name];
      if (node.items !== undefined) return `[${this.#print(node.items, inner)}]`;
      if (isObject(node.properties)) return typeOf(node) ?? Object.keys(node.properties).join();
      return JSON.stringify(node);
    });
    return createHash("sha256").update(parts.join("|")).digest("hex");
  }
}

function lastOf(name: string): string {
  return name.split(".").at(-1) ?? name;
}

/** The type of an object among the alternatives in its place. */
function typeOf(node: JsonObject): string | undefined {
  const { type, role } = (node.properties ?? {}) as Record<string, JsonObject>;
  const told = type?.const ?? (Array.isArray(type?.enum) ? type.enum[0] : undefined);
  if (typeof told !== "string") return undefined;
  return typeof role?.const === "string" ? `${told}:${role.const}` : told;
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
