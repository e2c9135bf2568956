import { DIALECTS } from "@responses-edge/engines/dialects/all";
import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { type ChatBody, spell } from "@responses-edge/engines/dialects/spell";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** A body as each kind of model server gets it. */

const OTHERS = Object.values(DIALECTS).filter(({ fields }) => fields !== undefined);
const FIELDS = [
  ...new Set(OTHERS.flatMap(({ fields }) => Object.keys(fields ?? {}))),
  ...["cache_salt", "stream_interval", "include_reasoning", "return_token_ids", "bad_words", "logits_processors"],
].filter((field) => !["messages", "tools", "tool_choice", "response_format"].includes(field));

const messages = [{ role: "user", content: "Hello" }];
const request = (changed: object = {}): CreateRequest => ({ model: "m", input: "Hello", ...changed });
const tool = (name: string) => ({ type: "function", function: { name, parameters: { type: "object" } } });
const named = { type: "function", function: { name: "b" } };

const bodies = fc
  .record(
    {
      more: fc.dictionary(fc.constantFrom(...FIELDS), fc.constantFrom<unknown>(0, 1, true, "x")),
      tools: fc.constantFrom([tool("a")], [tool("a"), tool("b")]),
      tool_choice: fc.constantFrom<unknown>("auto", "required", "none", named),
      response_format: fc.constant({ type: "json_schema", json_schema: { name: "n", schema: { pattern: "a" } } }),
    },
    { requiredKeys: ["more"] },
  )
  .map(({ more, ...rest }): ChatBody => ({ ...more, ...rest, logprobs: undefined, model: "m", messages }));

/** A dialect may send these fields. */
const known = ({ fields, grammar }: Dialect) => new Set([...Object.values(fields ?? {}), grammar]);

describe.each(OTHERS.map((dialect) => [dialect.name, dialect] as const))("to %s", (_, dialect) => {
  it("nothing goes that it does not know", () => {
    fc.assert(
      fc.property(bodies, (body) => {
        const spelt = spell(body, dialect, request());
        for (const field of Object.keys(spelt)) expect(known(dialect)).toContain(field);
        expect(Object.values(spelt)).not.toContain(undefined);
        expect(spelt.messages).toEqual(messages);
        expect(spell(body, dialect, request())).toEqual(spelt);
      }),
      { numRuns: 200 },
    );
  });

  it("goes no field of the client's that would be lost: it is refused by its name", () => {
    for (const field of ["bad_words", "prompt_logprobs"]) {
      const asked = request({ [field]: 1 });
      expect(() => spell({ model: "m", messages, [field]: 1 }, dialect, asked)).toThrow(`'${field}' is not supported`);
    }
  });

  it("goes an extra field only where that is ignored", () => {
    const extra = request({ vllm_fields: { colour: 1 } });
    const send = () => spell({ model: "m", messages, colour: 1 }, dialect, extra);
    if (dialect.unknownFields === "ignored") expect(send()).toMatchObject({ colour: 1 });
    else expect(send).toThrow("'colour' is not supported");
  });

  it("goes a choice as far as it is known", () => {
    const { tools, tool_choice } = spell(
      { model: "m", messages, tools: [tool("a"), tool("b")], tool_choice: named },
      dialect,
      request(),
    );
    const wanted = { named, required: "required", none: undefined }[dialect.choice];
    expect(tool_choice).toEqual(wanted);
    expect(tools).toEqual(dialect.choice === "named" ? [tool("a"), tool("b")] : [tool("b")]);
  });

  it("goes a grammar in its own field, or none at all", () => {
    const send = (outputs: object) => spell({ model: "m", messages, structured_outputs: outputs }, dialect, request());
    expect(send({ json: '{"type":"object"}' }).response_format).toMatchObject({
      json_schema: { schema: { type: "object" } },
    });
    const schema = dialect.name === "llamacpp" ? { schema: { type: "object" } } : {};
    expect(send({ json_object: true }).response_format).toEqual({ type: "json_object", ...schema });
    if (dialect.grammar === undefined) {
      expect(() => send({ grammar: 'root ::= "a"' })).toThrow("'structured_outputs' is not supported");
    } else {
      expect(send({ grammar: 'root ::= "a"' })[dialect.grammar]).toBe('root ::= "a"');
      expect(send({ choice: ["yes", 'n"o'] })[dialect.grammar]).toBe('root ::= "yes" | "n\\"o"');
      expect(send({ regex: "a+" })[dialect.grammar]).toContain("root");
    }
  });
});

it("goes to vLLM as it is", () => {
  fc.assert(fc.property(bodies, (body) => void expect(spell(body, DIALECTS.vllm, request())).toBe(body)));
});

it("goes to llama.cpp with patterns that match a text from its beginning to its end", () => {
  const schema = { properties: { a: { pattern: "a+" }, pattern: { const: { pattern: "b" } } } };
  const format = { type: "json_schema", json_schema: { name: "n", schema } };
  const { response_format: sent } = spell(
    { model: "m", messages, response_format: format },
    DIALECTS.llamacpp,
    request(),
  );
  expect(sent).toMatchObject({ json_schema: { schema: { properties: { a: { pattern: "^.*(a+).*$" } } } } });
  expect(sent).toMatchObject({ json_schema: { schema: { properties: { pattern: { const: { pattern: "b" } } } } } });
});
