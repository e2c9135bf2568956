import { z } from "zod";

/**
 * Lets an object all of whose fields are optional read only those that its input has. Zod reads all fields of the schema, also those
 * that are absent: for a create with three of its fifty fields that was a tenth of all memory that the request took.
 *
 * @throws Error if a field is not optional.
 */
export function withOptionalFields<Schema extends z.ZodObject>(schema: Schema): Schema {
  const whole = schema._zod.parse;
  const fields = Object.entries(schema.shape as Record<string, z.core.$ZodType>);
  for (const [name, field] of fields) {
    const { optin, optout } = field._zod;
    if (optin !== "optional" || optout !== "optional") throw new Error(`the field ${name} is not optional`);
  }
  schema._zod.parse = (payload, context) => {
    const input = payload.value;
    if (!z.core.util.isObject(input)) return whole(payload, context);
    const value: Record<string, unknown> = {};
    for (const [name, field] of fields) {
      if (!(name in input)) continue;
      const read = field._zod.run({ value: input[name], issues: [] }, context) as z.core.ParsePayload;
      if (read.issues.length > 0) payload.issues.push(...z.core.util.prefixIssues(name, read.issues));
      value[name] = read.value;
    }
    payload.value = value;
    return payload;
  };
  return schema;
}
