import { ApiError } from "@responses-edge/responses-api/errors";
import { formatPath, parse } from "@responses-edge/responses-api/validation-errors";
import { describe, expect, it } from "vitest";
import * as z from "zod";

/** The 400 of a value, as far as the tests look at it. */
function refusal(schema: z.ZodType, value: unknown) {
  try {
    parse(schema, value);
  } catch (error) {
    if (error instanceof ApiError) return { status: error.status, ...error.toBody().error };
    throw error;
  }
  throw new Error("Expected a refusal.");
}

describe("formatPath", () => {
  it.each<[path: (string | number)[], text: string]>([
    [[], ""],
    [["input"], "input"],
    [["input", 2, "content", 0, "image_url"], "input[2].content[0].image_url"],
    [[0, "a"], "[0].a"],
    [["metadata", "a.b"], "metadata.a.b"],
    [["metadata", "x".repeat(100)], `metadata.${"x".repeat(64)}…`],
  ])("%j is %s", (path, text) => {
    expect(formatPath(path)).toBe(text);
  });
});

describe("parse", () => {
  it("blames the first field at fault, by its path", () => {
    const schema = z.object({ a: z.array(z.object({ b: z.number() })), c: z.string() });
    expect(refusal(schema, { a: [{ b: 1 }, { b: "x" }], c: 5 })).toEqual({
      status: 400,
      message: "Invalid type for 'a[1].b': expected a number, but got a string instead.",
      type: "invalid_request_error",
      param: "a[1].b",
      code: "invalid_type",
    });
  });

  it.each<[schema: z.ZodType, wanted: string]>([
    [z.url(), "the format 'url'"],
    [z.string().regex(/^a/), "the expected pattern /^a/"],
  ])("a text of another form than %# is refused with the wanted one", (schema, wanted) => {
    const message = `Invalid 'a': 'nope' does not match ${wanted}.`;
    expect(refusal(z.object({ a: schema }), { a: "nope" })).toMatchObject({
      message,
      param: "a",
      code: "invalid_value",
    });
  });

  it("blames no field when the body itself is at fault", () => {
    expect(refusal(z.object({}), [])).toMatchObject({ param: null, code: "invalid_type" });
  });

  it("a missing field is missing, whether a type, a value or a discriminator was expected", () => {
    const kinds = [
      z.string(),
      z.literal("x"),
      z.enum(["x", "y"]),
      z.discriminatedUnion("type", [z.object({ type: z.literal("x") })]),
      z.union([z.string(), z.number()]),
    ];
    for (const kind of kinds) {
      const error = refusal(z.object({ a: kind }), {});
      expect(error).toMatchObject({
        param: "a",
        code: "missing_required_parameter",
        message: "Missing required parameter: 'a'.",
      });
    }
    const union = z.discriminatedUnion("type", [z.object({ type: z.literal("x") })]);
    expect(refusal(z.object({ a: union }), { a: {} })).toMatchObject({
      param: "a.type",
      code: "missing_required_parameter",
    });
  });

  it("of a union it blames the branch that got furthest into the value", () => {
    const schema = z.object({ a: z.union([z.string(), z.array(z.object({ b: z.enum(["x", "y"]) }))]) });
    expect(refusal(schema, { a: [{ b: "z" }] })).toMatchObject({
      param: "a[0].b",
      message: "Invalid value: 'z'. Supported values are: 'x', 'y'.",
    });
    expect(refusal(schema, { a: 5 })).toMatchObject({
      param: "a",
      message: "Invalid type for 'a': expected a string or an array, but got an integer instead.",
    });
  });

  it("quotes a client's value only in its beginning", () => {
    const { message } = refusal(z.object({ a: z.enum(["x"]) }), { a: "y".repeat(1_000_000) });
    expect(message).toContain(`'${"y".repeat(64)}…'`);
    expect(message.length).toBeLessThan(200);
  });

  it.each<[schema: z.ZodType, value: unknown, code: string]>([
    [z.string().max(2), "xxx", "string_above_max_length"],
    [z.string().min(2), "x", "string_below_min_length"],
    [z.string().regex(/^a$/), "b", "invalid_value"],
    [z.array(z.string()).max(1), ["a", "b"], "array_above_max_length"],
    [z.array(z.string()).min(1), [], "array_below_min_length"],
    [z.number().max(2), 3, "above_max_value"],
    [z.number().gt(0), 0, "below_min_value"],
    [z.int(), 1.5, "invalid_type"],
    [z.record(z.string().max(1), z.string()), { ab: "c" }, "invalid_value"],
    [z.custom(() => false), 1, "invalid_value"],
  ])("case %#: the code is the kind of fault", (schema, value, code) => {
    expect(refusal(z.object({ a: schema }), { a: value })).toMatchObject({ status: 400, code });
  });
});
