import type { ResponseFormatTextConfig } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { callsOf, expectCompleted, messageTextOf, refusalOf, type Subject } from "../../vllm/facts/subject.ts";
import { expectKept, responseOf, WAYS } from "./promises.ts";

const object = (properties: Record<string, object>, more: object = {}) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
  ...more,
});

const SCHEMAS: [
  name: string,
  schema: Record<string, unknown>,
  good: unknown,
  bad: string,
  keeps: (it: unknown) => boolean,
][] = [
  [
    "an enum",
    object({ name: { type: "string", enum: ["Ada", "Bob"] } }),
    { name: "Ada" },
    '{"name": "Eve"}',
    (it) => ["Ada", "Bob"].includes((it as { name: string }).name),
  ],
  [
    "numbers and booleans",
    object({ age: { type: "integer" }, old: { type: "boolean" } }),
    { age: 36, old: false },
    '{"age": "many", "old": 1}',
    (it) => Number.isInteger((it as { age: number }).age) && typeof (it as { old: boolean }).old === "boolean",
  ],
  [
    "a list with a minimum",
    object({ list: { type: "array", items: { type: "integer" }, minItems: 2, maxItems: 3 } }),
    { list: [1, 2] },
    '{"list": [1]}',
    (it) => [2, 3].includes((it as { list: number[] }).list.length),
  ],
  [
    "objects in objects",
    object({ at: object({ x: { type: "number" }, y: { type: "number" } }) }),
    { at: { x: 1.5, y: 2 } },
    '{"at": {"x": 1}}',
    (it) => typeof (it as { at: { y: unknown } }).at.y === "number",
  ],
  [
    "one or another",
    object({ value: { anyOf: [{ type: "integer" }, { type: "null" }] } }),
    { value: null },
    '{"value": "x"}',
    (it) => (it as { value: unknown }).value === null || Number.isInteger((it as { value: unknown }).value),
  ],
  [
    "a definition",
    object({ one: { $ref: "#/$defs/item" } }, { $defs: { item: object({ id: { type: "integer" } }) } }),
    { one: { id: 7 } },
    '{"one": {"id": "7"}}',
    (it) => Number.isInteger((it as { one: { id: unknown } }).one.id),
  ],
  [
    "a pattern of a whole string",
    object({ code: { type: "string", pattern: "^[A-Z]{2}[0-9]+$" } }),
    { code: "AB12" },
    '{"code": "abc"}',
    (it) => /^[A-Z]{2}[0-9]+$/.test((it as { code: string }).code),
  ],
  [
    // llama.cpp ignores a pattern that is not anchored.
    "a pattern of a part",
    object({ code: { type: "string", pattern: "b+" } }),
    { code: "abbc" },
    '{"code": "xyz"}',
    (it) => /b+/.test((it as { code: string }).code),
  ],
];

const LIMIT = { max_output_tokens: 300 };

const format = (schema: Record<string, unknown>): ResponseFormatTextConfig => ({
  type: "json_schema",
  name: "thing",
  schema,
  strict: true,
});

/** `text.format`: a completed answer matches its schema. */
export function schemas(subject: () => Subject): void {
  describe.each(SCHEMAS)("a schema with %s", (_, schema, good, bad, keeps) => {
    const text = { format: format(schema) };

    it.each(WAYS)("an answer that matches it streams, after its reasoning, %s", async (way) => {
      const speech = { thought: "Let me see.", text: JSON.stringify(good) };
      const response = await responseOf(subject(), way, speech, { text, ...LIMIT });
      expectCompleted(response);
      expect(JSON.parse(messageTextOf(response))).toEqual(good);
    });

    it.each(WAYS)("no other answer is completed, %s", async (way) => {
      const response = await responseOf(subject(), way, { text: bad }, { text, ...LIMIT });
      expectKept(response, (kept) => expect(keeps(JSON.parse(messageTextOf(kept)))).toBe(true));
    });
  });

  describe("json_object", () => {
    const text = { format: { type: "json_object" as const } };

    it.each(WAYS)("an answer in JSON streams, %s", async (way) => {
      const response = await responseOf(subject(), way, { text: '{"a": [1, {"b": null}]}' }, { text, ...LIMIT });
      expectCompleted(response);
      expect(JSON.parse(messageTextOf(response))).toEqual({ a: [1, { b: null }] });
    });

    it.each(WAYS)("no other answer is completed, %s", async (way) => {
      const response = await responseOf(subject(), way, { text: "Hello there." }, { text, ...LIMIT });
      expectKept(response, (kept) => expect(JSON.parse(messageTextOf(kept))).toBeTypeOf("object"));
    });
  });

  describe("beside a function", () => {
    const tools = [
      { type: "function" as const, name: "find", parameters: object({ q: { type: "string" } }), strict: true },
    ];
    const fields = { tools, text: { format: format(object({ name: { type: "string" } })) }, ...LIMIT };
    const call = { name: "find", arguments: '{"q": "Ada"}' };

    it.each(WAYS)("the model makes a call, or the response is not completed with half of both, %s", async (way) => {
      const response = await responseOf(subject(), way, { calls: [call] }, fields);
      expectCompleted(response);
      expect(callsOf(response)).toMatchObject([call]);
    });

    it.each(WAYS)("the model answers, in its schema, %s", async (way) => {
      const response = await responseOf(subject(), way, { text: '{"name": "Ada"}' }, fields);
      expectCompleted(response);
      expect(JSON.parse(messageTextOf(response))).toEqual({ name: "Ada" });
    });

    it.each(WAYS)("no other answer is completed, %s", async (way) => {
      const response = await responseOf(subject(), way, { text: "Ada." }, fields);
      expectKept(response, (kept) => {
        if (callsOf(kept).length === 0) expect(JSON.parse(messageTextOf(kept)).name).toBeTypeOf("string");
      });
    });
  });

  it("a schema whose reference leads nowhere is a 400", async () => {
    const text = { format: format(object({ one: { $ref: "#/$defs/nothing" } })) };
    expect(await refusalOf(subject().ask("Hello!", { text }))).toMatchObject({
      status: 400,
      param: expect.stringMatching(/^text\.format/),
    });
  });
}
