import { z } from "zod";

/**
 * Gives a schema that is code, and so has no JSON Schema, the JSON Schema of another one (`z.toJSONSchema`). `plain`
 * makes that schema on demand. The input and output of the schema stay the same.
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

/** A field that is always null. Some generators have no type for null alone. */
export function alwaysNull() {
  return describedAs(z.null(), () => z.unknown().describe("Always null."));
}
