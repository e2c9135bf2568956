import { RemainderFault } from "./faults.ts";
import { comparisonWithin, schemaAt } from "./schema-check.ts";
import { ANNOTATIONS, isObject } from "./schema-values.ts";

/** Schemas that hold of one value together: none, one, or more. */
export type Schemas = readonly unknown[];

export type JsonType = "object" | "array" | "string" | "number" | "boolean" | "null";

/** One way in which a value can conform: without references and alternatives. */
export interface Shape {
  /** All of these hold of the value. */
  schemas: readonly Record<string, unknown>[];
  types: ReadonlySet<JsonType>;
  isInteger: boolean;
  /** The value is one of these scalars. Undefined for any. */
  scalars: readonly unknown[] | undefined;
}

const TYPES: readonly JsonType[] = ["object", "array", "string", "number", "boolean", "null"];

/** Keywords that a grammar of this package enforces. */
const ENFORCED = new Set([
  ...["$ref", "additionalItems", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum"],
  ...["exclusiveMinimum", "format", "items", "maximum", "maxItems", "maxLength", "maxProperties", "minimum"],
  ...["minItems", "minLength", "minProperties", "nullable", "oneOf", "pattern", "patternProperties", "prefixItems"],
  ...["properties", "propertyNames", "required", "type"],
]);

/** The maximum of schemas in all shapes: alternatives of alternatives multiply. */
const MAX_STEPS = 200_000;

/** Schemas that are being put together. */
interface Choice {
  open: { schema: unknown; within: readonly unknown[] }[];
  flat: Set<Record<string, unknown>>;
  alternatives: { options: readonly unknown[]; within: readonly unknown[] }[];
}

/** Finds the shapes of the parts of a schema. */
export class SchemaShapes {
  /** Tells whether a value may conform to a part of the schema. */
  readonly mayHold: (value: unknown, schema: unknown) => boolean;
  /** Keywords of the schema that a grammar does not enforce, or not wholly. */
  readonly unenforced = new Set<string>();
  readonly #root: unknown;
  readonly #numbers = new Map<unknown, number>();
  readonly #known = new Map<string, readonly Shape[]>();
  readonly #ofValues = new Map<unknown, Record<string, unknown>>();
  #count = 0;

  constructor(root: unknown) {
    this.#root = root;
    this.mayHold = comparisonWithin(root);
  }

  /** Names some schemas: the same name for the same ones. */
  key(schemas: Schemas): string {
    const numbers = new Set<number>();
    for (const schema of schemas) {
      const isFree = schema === true || (isObject(schema) && Object.keys(schema).length === 0);
      if (isFree) continue;
      const number = this.#numbers.get(schema) ?? this.#numbers.size + 1;
      this.#numbers.set(schema, number);
      numbers.add(number);
    }
    return [...numbers].sort((a, b) => a - b).join("_");
  }

  /** The shapes of a value of which some schemas hold; none if no value conforms. */
  shapes(schemas: Schemas): readonly Shape[] {
    const key = this.key(schemas);
    const known = this.#known.get(key);
    if (known) return known;
    const shapes = this.#expand(schemas).flatMap((flat) => this.#shapesOf(flat));
    this.#known.set(key, shapes);
    return shapes;
  }

  /** The schemas that hold together, for each choice of alternatives. */
  #expand(schemas: Schemas): Record<string, unknown>[][] {
    const found: Record<string, unknown>[][] = [];
    const first = schemas.toReversed().map((schema) => ({ schema, within: [] }));
    const choices: Choice[] = [{ open: first, flat: new Set(), alternatives: [] }];
    for (let choice = choices.pop(); choice; choice = choices.pop()) {
      const { flat, alternatives } = choice;
      if (!this.#flatten(choice)) continue;
      this.#work(1 + flat.size);
      const chosen = alternatives.shift();
      if (!chosen) found.push([...flat]);
      else {
        for (const schema of chosen.options.toReversed()) {
          const open = [{ schema, within: chosen.within }];
          choices.push({ open, flat: new Set(flat), alternatives: [...alternatives] });
        }
      }
    }
    return found;
  }

  /** Adds the schemas that a choice refers to, and their alternatives. False if no value has it. */
  #flatten({ open, flat, alternatives }: Choice): boolean {
    for (let entry = open.pop(); entry; entry = open.pop()) {
      const { schema, within } = entry;
      // An alternative of a schema that is the schema itself adds no value.
      if (schema === false || within.includes(schema)) return false;
      if (!isObject(schema) || flat.has(schema)) continue;
      flat.add(schema);
      this.#work(within.length);
      const inside = [...within, schema];
      this.#noteUnenforced(schema);
      const { $ref, allOf, anyOf, oneOf } = schema;
      if ($ref !== undefined) open.push({ schema: schemaAt(this.#root, $ref) ?? true, within: inside });
      // The first of them is read next: the order of properties is that of the schemas.
      if (Array.isArray(allOf)) open.push(...allOf.toReversed().map((schema: unknown) => ({ schema, within: inside })));
      for (const options of [anyOf, oneOf]) {
        if (Array.isArray(options)) alternatives.push({ options: options as unknown[], within: inside });
      }
    }
    return true;
  }

  #noteUnenforced(schema: Record<string, unknown>): void {
    for (const keyword of Object.keys(schema)) {
      if (!ENFORCED.has(keyword) && !ANNOTATIONS.has(keyword)) this.unenforced.add(keyword);
    }
    const { $ref, oneOf } = schema;
    if ($ref !== undefined && schemaAt(this.#root, $ref) === undefined) this.unenforced.add("$ref");
    if (Array.isArray(oneOf) && oneOf.length > 1) this.unenforced.add("oneOf");
  }

  #shapesOf(schemas: readonly Record<string, unknown>[]): Shape[] {
    this.#work();
    const types = new Set(TYPES.filter((type) => schemas.every((schema) => allows(schema, type))));
    const isInteger = schemas.some(({ type }) => {
      const types = typesIn(type);
      return types?.includes("integer") === true && !types.includes("number");
    });
    const listed = schemas.flatMap((schema) => {
      if (Object.hasOwn(schema, "const")) return [[schema.const]];
      return Array.isArray(schema.enum) ? [schema.enum as unknown[]] : [];
    });
    const [values] = listed;
    if (!values) return types.size === 0 ? [] : [{ schemas, types, isInteger, scalars: undefined }];
    const held = values.filter((value) => schemas.every((schema) => this.mayHold(value, schema)));
    const scalars = held.filter((value) => typeof value !== "object" || value === null);
    const containers = held.filter((value) => typeof value === "object" && value !== null);
    return [
      ...(scalars.length === 0
        ? []
        : [{ schemas: [], types: new Set(scalars.map(typeOf)), isInteger: false, scalars }]),
      ...containers.flatMap((value) => this.#shapesOf([this.#schemaOf(value)])),
    ];
  }

  /** The schema of only this container. */
  #schemaOf(value: unknown): Record<string, unknown> {
    const known = this.#ofValues.get(value);
    if (known) return known;
    const each = (part: unknown) => ({ const: part });
    const schema = Array.isArray(value)
      ? { type: "array", prefixItems: value.map(each), minItems: value.length, maxItems: value.length }
      : {
          type: "object",
          properties: Object.fromEntries(Object.entries(value as object).map(([key, part]) => [key, each(part)])),
          required: Object.keys(value as object),
          additionalProperties: false,
        };
    this.#ofValues.set(value, schema);
    return schema;
  }

  #work(steps = 1): void {
    this.#count += steps;
    if (this.#count > MAX_STEPS) throw new RemainderFault("too_large");
  }
}

function typesIn(type: unknown): unknown[] | undefined {
  return type === undefined ? undefined : Array.isArray(type) ? type : [type];
}

function allows(schema: Record<string, unknown>, type: JsonType): boolean {
  const types = typesIn(schema.type);
  if (!types || types.includes(type)) return true;
  return type === "null" ? schema.nullable === true : type === "number" && types.includes("integer");
}

function typeOf(scalar: unknown): JsonType {
  return scalar === null ? "null" : (typeof scalar as JsonType);
}
