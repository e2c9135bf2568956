import { outputSchemas } from "@responses-edge/responses-api/items/answered";
import { FOREIGN } from "@responses-edge/responses-api/items/foreign";
import * as parts from "@responses-edge/responses-api/items/parts";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import { z } from "zod";
import { answerSchemas, bodySchemas, sharedSchemas } from "./schemas.ts";

/** The description's components: every schema with a name, each once. */

/** Unions whose members have names of their own, which derive from a member's `type`. */
const MEMBER_NAMES: Record<string, (type: string) => string> = {
  InputItem: (type) => `${type}Input`,
  InputPart: (type) => `${type}Part`,
  Tool: (type) => `${type}Tool`,
  NamedToolChoice: (type) => `${type}Choice`,
  NestedToolChoice: (type) => `Nested${type}Choice`,
  TextFormat: (type) => `${type}OutputFormat`,
  AttributeFilter: (type) => ({ Eq: "ComparisonFilter", In: "MembershipFilter" })[type] ?? "CompoundFilter",
  StoredInput: (type) => `Stored${type}`,
  ResponseStreamEvent: (type) => `${type}Event`,
};

/** Unions whose members are told apart by `type`. */
const TOLD_APART = [
  ...["InputPart", "Tool", "NamedToolChoice", "NestedToolChoice", "TextFormat"],
  ...["OutputItem", "ResponseStreamEvent"],
];

/** Every component's JSON Schema (draft 2020-12, as OpenAPI 3.1 has it), by its name. */
export function componentSchemas(): Record<string, JsonObject> {
  const registry = z.registry<{ id: string }>();
  const named: Record<string, z.ZodType> = {
    ...sharedSchemas(),
    ...bodySchemas(),
    ...outputComponents(),
    ...answerSchemas(),
  };
  for (const [id, schema] of Object.entries(named)) {
    registry.add(schema, { id });
    const nameOf = MEMBER_NAMES[id];
    if (!nameOf) continue;
    for (const { types, member } of membersOf(schema)) {
      const name = nameOf(pascal(firstOf(types)));
      registry.add(member, { id: name });
      // The schema of a message differs by role.
      for (const [role, ofRole] of rolesOf(member)) registry.add(ofRole, { id: `${pascal(role)}${name}` });
    }
  }
  // Schemas of answers have the same input and output.
  const { schemas } = z.toJSONSchema(registry, { uri: reference, io: "input", override: corrected });
  const components = Object.entries(schemas).map(([id, { $schema: _schema, $id: _id, ...schema }]) => [id, schema]);
  const found = plain(Object.fromEntries(components)) as Record<string, JsonObject>;
  for (const id of TOLD_APART) found[id] = { ...found[id], discriminator: discriminator(named[id], registry) };
  return withUntyped(found);
}

/** The items that a turn outputs, and their parts. */
function outputComponents(): Record<string, z.ZodType> {
  const items = [...outputSchemas()].map(([type, schema]) => [OUTPUT_NAMES[type] ?? pascal(type), schema]);
  return {
    UrlCitation: parts.urlCitation(),
    FileCitation: parts.fileCitation(),
    ContainerFileCitation: parts.containerFileCitation(),
    TopLogprob: parts.topLogprob(),
    Logprob: parts.logprob(),
    OutputText: parts.outputText(),
    Refusal: parts.refusal(),
    ReasoningText: parts.reasoningText(),
    SummaryText: parts.summaryText(),
    ...Object.fromEntries(items),
  };
}

/** Names that do not derive from the item's type alone. */
const OUTPUT_NAMES: Record<string, string> = { message: "OutputMessage", reasoning: "ReasoningItem" };

function discriminator(union: z.ZodType | undefined, registry: z.core.$ZodRegistry<{ id: string }>) {
  const mapping = membersOf(union).flatMap(({ types, member }) => {
    const name = reference(registry.get(member)?.id ?? "");
    return types.map((type) => [type, name]);
  });
  return { propertyName: "type", mapping: Object.fromEntries(mapping) as Record<string, string> };
}

/** The type that names a member. All items that only OpenAI has share one schema. */
function firstOf([type = ""]: readonly string[]): string {
  return type === FOREIGN[0] ? "foreign_item" : type;
}

function reference(id: string): string {
  return `#/components/schemas/${id}`;
}

/** `response.output_text.delta` → `ResponseOutputTextDelta`. */
function pascal(type: string): string {
  return type.replaceAll(/(?:^|[._])(\w)/g, (_, letter: string) => letter.toUpperCase());
}

/** The members of a union told apart by `type`, and their types. */
function membersOf(schema: z.ZodType | undefined): { types: string[]; member: z.ZodType }[] {
  const union = schema instanceof z.ZodPipe ? schema.out : schema;
  if (!(union instanceof z.ZodUnion)) throw new TypeError("Only a union has members.");
  return (union.options as z.ZodType[]).map((member) => ({ types: typesOf(member), member }));
}

function typesOf(member: unknown): string[] {
  if (member instanceof z.ZodPipe) return typesOf(member.in);
  if (member instanceof z.ZodUnion) return typesOf(member.options[0]);
  const { type } = member instanceof z.ZodObject ? member.shape : {};
  if (type instanceof z.ZodLiteral) return [...type.values] as string[];
  if (type instanceof z.ZodEnum) return type.options as string[];
  throw new TypeError("A member of such a union has a type.");
}

function rolesOf(member: z.ZodType): [role: string, member: z.ZodType][] {
  if (!(member instanceof z.ZodUnion)) return [];
  return (member.options as z.ZodType[]).flatMap((ofRole) => {
    const object = ofRole instanceof z.ZodPipe ? ofRole.in : ofRole;
    const role = object instanceof z.ZodObject ? object.shape.role : undefined;
    return role instanceof z.ZodLiteral ? [[String(role.value), ofRole]] : [];
  });
}

type Override = NonNullable<z.core.ToJSONSchemaParams["override"]>;

/** Corrects JSON Schema that zod generates wrong, and leaves out keywords without effect. */
const corrected: Override = ({ zodSchema, jsonSchema }) => {
  const { maximum, minimum, propertyNames } = jsonSchema;
  if (maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (isJsonObject(propertyNames) && Object.keys(propertyNames).join() === "type") delete jsonSchema.propertyNames;
  // Generators treat a field with a default as always present, and would require it in bodies.
  if (jsonSchema.default !== undefined) {
    const { default: given, description = "" } = jsonSchema;
    jsonSchema.description = `${description} Default: \`${JSON.stringify(given)}\`.`.trimStart();
    delete jsonSchema.default;
  }
  // `collections.ts` checks the elements by code, so that zod takes the field for optional.
  if (zodSchema instanceof z.ZodObject) {
    const required = Object.keys(zodSchema.shape).filter((key) => !isOptional(zodSchema.shape[key]));
    if (required.length > 0) jsonSchema.required = required;
  }
};

function isOptional(field: z.ZodType): boolean {
  return field.safeParse(undefined).success;
}

/**
 * A schema in the form that generators support best. Nested unions are flattened, values of different types are `oneOf`, nullable
 * values have `null` among their types, and properties of bodies that may only be null are left out: those fields are not served.
 */
function plain(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(plain);
  if (!isJsonObject(node)) return node;
  if (Array.isArray(node.type)) {
    const { type, ...rest } = node;
    return plain({ ...rest, anyOf: type.map((each) => ({ type: each })) });
  }
  const { anyOf, properties, ...rest } = node;
  // Some generators turn the constant `true` into a text.
  if (rest.type === "boolean") delete rest.const;
  const others = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, plain(value)]));
  if (isJsonObject(properties)) {
    const kept = Object.entries(properties).filter(([, value]) => !(isJsonObject(value) && isNotServed(value)));
    // Names of properties are not keywords.
    const plainly = Object.fromEntries(kept.map(([key, value]) => [key, plain(value)]));
    return { ...others, properties: plainly };
  }
  if (!Array.isArray(anyOf)) return others;
  const branches = alternatives(anyOf).map(plain);
  const values = branches.filter((branch) => !isNull(branch));
  const [only] = values;
  const isSimple = values.length === 1 && isJsonObject(only) && typeof only.type === "string" && !("const" in only);
  if (!isSimple) {
    const all = values.length === branches.length ? values : [...values, { type: "null" }];
    const types = all.map((branch) => (isJsonObject(branch) ? branch.type : undefined));
    const exclude = types.every((type) => typeof type === "string") && new Set(types).size === types.length;
    return { ...others, [exclude ? "oneOf" : "anyOf"]: all };
  }
  const { type, enum: words, ...told } = only;
  return { ...told, ...others, type: [type, "null"], ...(Array.isArray(words) && { enum: [...words, null] }) };
}

function isNull(schema: unknown): boolean {
  return isJsonObject(schema) && schema.type === "null" && schema.description === undefined;
}

/** True if a body's schema says that the field is not served. */
function isNotServed({ type, description }: JsonObject): boolean {
  return type === "null" && description !== undefined;
}

/** The members of a union, including those of nested unions. */
function alternatives(anyOf: readonly unknown[]): unknown[] {
  return anyOf.flatMap((branch) => {
    const isBare = isJsonObject(branch) && Array.isArray(branch.anyOf) && Object.keys(branch).length === 1;
    return isBare ? alternatives(branch.anyOf as unknown[]) : [branch];
  });
}

/** Items that may leave out their type, as in OpenAI's API: a message is recognised by its role, a reference by its id alone. */
const UNTYPED = /MessageInput$|^ItemReferenceInput$/;

function withUntyped({ InputItem, ...schemas }: Record<string, JsonObject>): Record<string, JsonObject> {
  const easy = Object.entries(schemas)
    .filter(([name, { required }]) => UNTYPED.test(name) && Array.isArray(required))
    .map(([name, schema]) => [name, withoutType(schema)] as const);
  // `anyOf`, because an item with an id and a role matches both.
  return { InputItem: { anyOf: InputItem?.oneOf }, ...schemas, ...Object.fromEntries(easy) };
}

function withoutType({ required, ...schema }: JsonObject): JsonObject {
  return { ...schema, required: (required as string[]).filter((name) => name !== "type") };
}
