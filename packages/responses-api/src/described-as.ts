import { z } from "zod";

/**
 * Gives a schema that is made of code, which no JSON Schema can say, the JSON Schema of another one (`z.toJSONSchema`). `plain` is made
 * when it is asked for. The input and output of the schema stay as they are.
 */
export function describedAs<Schema extends z.ZodType>(schema: Schema, plain: () => z.ZodType): Schema {
  schema._zod.processJSONSchema = (context, _json, params) => {
    const described = plain();
    z.core.processSchema(described, context, params);
    const seen = context.seen.get(schema);
    if (seen) seen.ref = described;
  };
  return schema;
}

/** A field that is always null. Some generators have no type for that alone. */
export function alwaysNull() {
  return describedAs(z.null(), () => z.unknown().describe("Always null."));
}
