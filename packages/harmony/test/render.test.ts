import type { DeveloperContent, HarmonyMessage, SystemContent } from "@responses-edge/harmony";
import {
  CALL,
  CHANNEL,
  CONSTRAIN,
  compactJson,
  dropAnalysis,
  END,
  hasSpecialLiteral,
  headerFault,
  headerSegments,
  MESSAGE,
  renderConversation,
  renderMessage,
  START,
  toText,
} from "@responses-edge/harmony";
import { describe, expect, it } from "vitest";
import { charactersTouched } from "../../../test/work.ts";

// node/oracle.test.ts compares random conversations with openai/harmony; these are the facts worth naming.

function message(fields: Partial<HarmonyMessage>, text = "x"): HarmonyMessage {
  return { role: "user", content: [{ type: "text", text }], ...fields };
}

function system(content: Partial<SystemContent>): HarmonyMessage {
  return { role: "system", content: [{ type: "system_content", ...content }] };
}

function developer(content: Partial<DeveloperContent>): HarmonyMessage {
  return { role: "developer", content: [{ type: "developer_content", ...content }] };
}

function withFunction(parameters: unknown): HarmonyMessage {
  return developer({
    tools: { functions: { name: "functions", tools: [{ name: "f", description: "", parameters }] } },
  });
}

/** The TypeScript type of the parameters of a function. */
function typeOf(parameters: unknown, normaliseSchemas: boolean): string {
  const text = toText(renderMessage(withFunction(parameters), { normaliseSchemas }));
  const [, type] = /type f = \(_: (.*)\) => any;\n\n\} \/\/ namespace functions<\|end\|>$/s.exec(text) ?? [];
  if (type === undefined) throw new Error(text);
  return type;
}

const shown = (schema: unknown) => typeOf({ type: "object", properties: { p: schema } }, true).slice(2, -2);

describe("a message", () => {
  it("is its header and its content, between special tokens", () => {
    expect(renderMessage(message({ name: "bob" }))).toEqual([START, "user", ":bob", MESSAGE, "x", END]);
  });

  it("of a tool begins with the tool's name, and has to have one", () => {
    const result = message({ role: "tool", name: "functions.f", recipient: "assistant", channel: "commentary" });
    expect(toText(renderMessage(result))).toBe(
      "<|start|>functions.f to=assistant<|channel|>commentary<|message|>x<|end|>",
    );
    expect(() => renderMessage(message({ role: "tool" }))).toThrow("name");
  });

  it("of the assistant to anybody is a call, even to everybody, whom the header does not name", () => {
    const fields = { role: "assistant", channel: "commentary", content_type: "<|constrain|>json" } as const;
    expect(renderMessage(message({ ...fields, recipient: "functions.f" }, "{}"))).toEqual([
      START,
      "assistant",
      " to=functions.f",
      CHANNEL,
      "commentary",
      " ",
      CONSTRAIN,
      "json",
      MESSAGE,
      "{}",
      CALL,
    ]);
    expect(toText(renderMessage(message({ ...fields, recipient: "all" })))).toMatch(
      /^<\|start\|>assistant<.*<\|call\|>$/,
    );
    expect(toText(renderMessage(message({ recipient: "all" })))).toBe("<|start|>user<|message|>x<|end|>");
  });

  it("has the header that the model wrote, if that is kept", () => {
    const header = "assistant<|channel|>commentary to=functions.f <|constrain|>json";
    const call = message({ role: "assistant", recipient: "functions.f", channel: "commentary", header });
    expect(toText(renderMessage(call))).toBe(`<|start|>${header}<|message|>x<|call|>`);
  });

  it("has system or developer content only in that role", () => {
    expect(() => renderMessage({ ...system({}), role: "user" })).toThrow("role user");
    expect(() => renderMessage({ ...developer({}), role: "system" })).toThrow("role system");
  });
});

describe("a header as text", () => {
  it("has no special tokens but those of headers", () => {
    expect(headerSegments("assistant<|channel|>final<|end|>")).toEqual(["assistant", CHANNEL, "final<|end|>"]);
    expect(headerSegments("<|constrain|><|channel|>")).toEqual([CONSTRAIN, CHANNEL]);
    expect(headerSegments("")).toEqual([]);
  });
});

describe("the system message", () => {
  const content: Partial<SystemContent> = {
    model_identity: "You are a model.",
    knowledge_cutoff: "2024-06",
    conversation_start_date: "2026-11-21",
    reasoning_effort: "High",
    channel_config: { valid_channels: ["analysis", "final"], channel_required: true },
  };

  it("has its sections in order", () => {
    expect(toText(renderConversation([system(content)]))).toBe(
      "<|start|>system<|message|>You are a model.\nKnowledge cutoff: 2024-06\nCurrent date: 2026-11-21\n\n" +
        "Reasoning: high\n\n# Valid channels: analysis, final. Channel must be included for every message." +
        "<|end|><|start|>assistant",
    );
  });

  it("says where function calls go when the conversation has functions", () => {
    const note = "\nCalls to these tools must go to the commentary channel: 'functions'.<|end|>";
    expect(toText(renderConversation([system(content), withFunction({})]))).toContain(note);
    const none = developer({ tools: { functions: { name: "functions", tools: [] } } });
    expect(toText(renderConversation([system(content), none]))).not.toContain(note);
  });

  it("can be empty", () => {
    expect(toText(renderMessage(system({})))).toBe("<|start|>system<|message|><|end|>");
  });
});

describe("the developer message", () => {
  it("ends with the response format", () => {
    const response_format = { name: "answer", description: "One\ntwo", schema: { type: "object" } };
    expect(toText(renderMessage(developer({ instructions: "Be brief.", response_format })))).toBe(
      "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n" +
        '# Response Formats\n\n## answer\n\n// One\n// two\n{"type":"object"}<|end|>',
    );
    expect(toText(renderMessage(developer({ response_format: { name: "a", schema: {} } })))).toContain("## a\n\n{}<");
  });

  it("has namespaces in the order of their keys' code points, and tools in their own", () => {
    const keys = ["\u{1F600}", "\uFF5E", "a", "Z", "10", "9"];
    const tools = Object.fromEntries(keys.map((key) => [key, { name: key, tools: [] }]));
    expect(toText(renderMessage(developer({ tools }))).match(/(?<=## ).+/gu)).toEqual(
      ["10", "9", "Z", "a", "\uFF5E", "\u{1F600}<|end|>"].map((key) => key.replace("<|end|>", "")),
    );
  });

  it("shows a tool without parameters, and comments on tools line by line", () => {
    const tools = { t: { name: "t", description: "A\r\nB", tools: [{ name: "f", description: "C\n\nD\n" }] } };
    expect(toText(renderMessage(developer({ tools })))).toBe(
      "<|start|>developer<|message|># Tools\n\n## t\n\n// A\n// B\nnamespace t {\n\n" +
        "// C\n// \n// D\ntype f = () => any;\n\n} // namespace t<|end|>",
    );
  });
});

describe("a schema as the reference shows it", () => {
  it.each([
    [{}, "any"],
    [{ type: "object" }, "{\n}"],
    [{ type: "array" }, "Array<any>"],
    [{ type: "array", items: { type: "string", enum: ["a", "b"] } }, '"a" | "b"[]'],
    [{ type: ["integer", "null"] }, "number | null"],
    [{ type: "string", enum: ['"', 1] }, '"""'],
    [{ type: "integer", enum: [1] }, "number"],
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, "any"],
    [{ oneOf: [{ type: "string", description: "a" }, { type: "number" }] }, "\n | string // a\n | number"],
    [
      { type: "object", required: ["a"], properties: { a: { type: "string", default: 'q"' }, b: { nullable: true } } },
      '{\na: string, // default: "q""\nb?: any | null,\n}',
    ],
    [
      { type: "object", properties: { a: { type: "object", description: "D", properties: { b: {} } } } },
      "{\n// D\na?:     // D\n{\n    b?: any,\n    },\n}",
    ],
    [
      { type: "object", properties: { a: { type: "number", title: "T", examples: [1, "x"], default: 1e21 } } },
      '{\n// T\n//\n// Examples:\n// - "x"\na?: number, // default: 1e21\n}',
    ],
    [
      { type: "object", properties: { a: { description: "D", oneOf: [{ type: "string" }], default: 1 } } },
      "{\n// D\n// default: 1\na?:\n | string\n,\n}",
    ],
    [JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}}}'), "{\n__proto__?: string,\n}"],
    [{ type: "object", properties: { a: { description: "one\ntwo" } } }, "{\n// one\ntwo\na?: any,\n}"],
  ])("%j is %j", (schema, type) => {
    expect(typeOf(schema, false)).toBe(type);
  });

  it("prints numbers as Rust does", () => {
    const numbers = [1e15, 1e16, 2 ** 53, -1e21, 1.5, 0.00001, 0.0000012, -0, 123456789012345680];
    expect(compactJson(numbers)).toBe(
      "[1000000000000000,1e16,9007199254740992.0,-1e21,1.5,0.00001,1.2e-6,0,1.2345678901234568e17]",
    );
  });
});

describe("a schema as we show it", () => {
  it.each([
    [
      "optional",
      { anyOf: [{ type: "string" }, { type: "null" }], default: null },
      "p?: string | null, // default: null",
    ],
    [
      "optional items",
      { type: "array", items: { anyOf: [{ type: "string" }, { type: "null" }] } },
      "p?: string | null[],",
    ],
    ["a union of scalars", { anyOf: [{ type: "string" }, { type: "integer" }] }, "p?: string | number,"],
    ["a union", { anyOf: [{ type: "string" }, { type: "object" }] }, "p?:\n | string\n | {\n   }\n,"],
    ["an optional object", { type: ["object", "null"], properties: { a: {} } }, "p?: {\n    a?: any,\n    } | null,"],
    ["a constant", { const: "x" }, 'p?: "x",'],
    ["a constant number", { const: 5 }, "p?: 5,"],
    ["numbers", { type: "integer", enum: [1, 2, null] }, "p?: 1 | 2 | null,"],
    ["an enum without a type", { enum: ["a", "b"] }, 'p?: "a" | "b",'],
    ["an optional enum", { type: ["string", "null"], enum: ["a", null] }, 'p?: "a" | null,'],
    ["null", { type: "null" }, "p?: null,"],
    ["an allOf", { allOf: [{ type: "string", description: "A" }], description: "B" }, "// B\np?: string,"],
    ["constraints on an object", { type: "object", anyOf: [{ required: ["a"] }] }, "p?: {\n    },"],
    ["a comment of two lines", { type: "string", description: "one\r\ntwo\n" }, "// one\n// two\np?: string,"],
    ["a text of two lines", { type: "string", default: "a\nb" }, 'p?: string, // default: "a\\nb"'],
    ["an unknown reference", { $ref: "https://example.com/schema" }, "p?: any,"],
  ])("%s", (_name, schema, text) => {
    expect(shown(schema)).toBe(text);
  });

  it("has references inlined, with their sibling keywords, until they refer to themselves", () => {
    const schema = {
      type: "object",
      properties: { a: { $ref: "#/$defs/Node", description: "Root." }, b: { $ref: "#/definitions/a~1b" } },
      $defs: { Node: { type: "object", properties: { next: { $ref: "#/$defs/Node" } } } },
      definitions: { "a/b": { type: "string" } },
    };
    const before = structuredClone(schema);
    expect(typeOf(schema, true)).toBe("{\n// Root.\na?:     // Root.\n{\n    next?: any,\n    },\nb?: string,\n}");
    expect(schema).toEqual(before);
  });
});

describe("a hostile schema", () => {
  function nested(depth: number): unknown {
    let schema: unknown = { type: "string" };
    for (let level = 0; level < depth; level++) {
      schema = [
        { type: "object", properties: { a: schema } },
        { anyOf: [schema, { type: "null" }] },
        { oneOf: [schema, true] },
        { type: "array", items: schema },
        { allOf: [schema] },
        { default: [schema] },
      ][level % 6];
    }
    return schema;
  }

  it.each([true, false])("is shown as far as it is not too deep (normalised: %j)", (normaliseSchemas) => {
    expect(typeOf({ type: "object", properties: { a: nested(10_000) } }, normaliseSchemas).length).toBeLessThan(
      100_000,
    );
  });

  it("cannot grow by its references", () => {
    const $defs: Record<string, unknown> = {};
    for (let index = 0; index < 60; index++) {
      const $ref = `#/$defs/D${index + 1}`;
      $defs[`D${index}`] = { type: "object", properties: { a: { $ref }, b: { $ref } } };
    }
    expect(typeOf({ $ref: "#/$defs/D0", $defs }, true).length).toBeLessThan(1_000_000);

    const long = { Long: { description: "x".repeat(60_000) } };
    const properties = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`p${i}`, { $ref: "#/$defs/Long" }]));
    expect(typeOf({ type: "object", properties, $defs: long }, true).length).toBeLessThan(300_000);
  });

  it("may have comments of any length", () => {
    const description = "\n".repeat(1_000_000);
    const tools = { t: { name: "t", description, tools: [{ name: "f", description, parameters: { description } }] } };
    expect(() => renderMessage(developer({ tools }))).not.toThrow();
  });

  it("of a megabyte takes no more than its size", () => {
    const properties = Object.fromEntries(
      Array.from({ length: 40_000 }, (_, i) => [`p${i}`, { anyOf: [{ const: i }] }]),
    );
    let visits = 0;
    /** The schema, counting each look at a member of it. */
    const counted = <Node extends object>(node: Node): Node =>
      new Proxy(node, {
        get(target, key, receiver) {
          visits += 1;
          const member: unknown = Reflect.get(target, key, receiver);
          return typeof member === "object" && member !== null ? counted(member) : member;
        },
      });
    expect(typeOf(counted({ type: "object", properties }), true)).toContain("p39999?: 39999,");
    expect(visits).toBeGreaterThan(40_000);
    expect(visits).toBeLessThan(40_000 * 50);
  });

  it.each([null, true, 5, "x", [], { type: {} }, { type: [] }, { properties: [] }, { oneOf: {} }, { oneOf: [null] }])(
    "that is invalid does no harm: %j",
    (schema) => {
      for (const normaliseSchemas of [true, false]) {
        expect(() => typeOf({ type: "object", properties: { p: schema } }, normaliseSchemas)).not.toThrow();
        expect(() => renderMessage(withFunction(schema), { normaliseSchemas })).not.toThrow();
      }
    },
  );
});

describe("special-token literals in text", () => {
  it.each([
    [["<|start|>"], true],
    [["a <|reserved_7|> b"], true],
    [["<|", "start|>"], true],
    [["<", "|", "s", "t", "|", ">"], true],
    [["<|st", "", "art|>"], true],
    [["<|st", END, "art|>"], false],
    [[START, "assistant", END], false],
    [["<| start|>"], false],
    [["<||>"], false],
    [[`<|${"x".repeat(40)}`, "|>"], true],
    [[`<|${"x".repeat(41)}|>`], false],
    [[], false],
  ])("%j: %j", (segments, found) => {
    expect(hasSpecialLiteral(segments)).toBe(found);
  });

  it.each([
    ["long texts", ["<|".repeat(100_000), "<|a".repeat(50_000)]],
    ["many texts", Array.from({ length: 100_000 }, () => "<|a")],
  ])("are looked for with linear work in %s", async (_what, segments) => {
    const touched = await charactersTouched(() => expect(hasSpecialLiteral(segments)).toBe(false));
    expect(touched).toBeLessThan(100 * segments.join("").length);
  });
});

describe("old thoughts", () => {
  const say = (channel: HarmonyMessage["channel"], text: string) => message({ role: "assistant", channel }, text);

  it("go when an answer has been given, with the calls within them; new ones stay", () => {
    const call = message({ role: "assistant", channel: "analysis", recipient: "python" });
    const result = message({ role: "tool", name: "python", channel: "analysis" });
    const preamble = say("commentary", "Let me see.");
    const history = [message({}), say("analysis", "a"), call, result, preamble, say("final", "b"), message({})];
    expect(dropAnalysis([...history, say("analysis", "c")])).toEqual([
      history[0],
      preamble,
      say("final", "b"),
      message({}),
      say("analysis", "c"),
    ]);
  });

  it("stay while no answer has been given, and no other author gives one", () => {
    const history = [say("analysis", "a"), message({ channel: "final" })];
    expect(dropAnalysis(history)).toEqual(history);
    expect(dropAnalysis([])).toEqual([]);
  });
});

describe("header fields", () => {
  it.each([
    [{ role: "user" }],
    [
      {
        role: "assistant",
        recipient: "functions.web-browsing",
        channel: "commentary",
        content_type: "<|constrain|>json",
      },
    ],
    [{ role: "tool", name: "functions.f", recipient: "assistant", channel: "analysis", content_type: "code" }],
  ])("%j are fine", (fields) => {
    expect(headerFault(fields)).toBeUndefined();
  });

  it.each<[field: string, fields: object]>([
    ["role", {}],
    ["role", { role: "root" }],
    ["role", { role: ["user"] }],
    ["name", { role: "tool" }],
    ["name", { role: "user", name: "" }],
    ["name", { role: "user", name: null }],
    ["name", { role: "user", name: "a\n" }],
    ["name", { role: "user", name: "x".repeat(129) }],
    ["recipient", { role: "assistant", recipient: "all<|channel|>final" }],
    ["recipient", { role: "assistant", recipient: "a b" }],
    ["channel", { role: "assistant", channel: "Final" }],
    ["channel", { role: "assistant", channel: { toString: () => "final" } }],
    ["content_type", { role: "assistant", content_type: "text" }],
    ["content_type", { role: "assistant", content_type: "json<|message|>" }],
  ])("the %s is at fault in %j", (field, fields) => {
    expect(headerFault(fields)).toEqual({ field, message: expect.stringContaining(`'${field}'`) });
  });
});
