import { type MarkupOptions, MarkupReader, type Piece } from "@responses-edge/turn/contract/model-markup/markup-reader";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** The text of a model whose server has no parsers, split into thoughts, text and calls. */

const weather = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } };
const tools: MarkupOptions["tools"] = new Map([
  ["get_weather", weather],
  ["get_time", null],
]);

/** The pieces of an answer that comes in parts of these lengths, one after another. */
function read(text: string, options: Partial<MarkupOptions> = {}, lengths: readonly number[] = [text.length]) {
  const reader = new MarkupReader({ tools, beginsInThought: false, ...options });
  const pieces: Piece[] = [];
  for (let at = 0, part = 0; at < text.length; part += 1) {
    const length = Math.max(1, lengths[part % lengths.length] ?? 1);
    pieces.push(...reader.push(text.slice(at, at + length)));
    at += length;
  }
  pieces.push(...reader.end());
  const joined: Piece[] = [];
  for (const piece of pieces) {
    const last = joined.at(-1);
    if (piece.kind !== "call" && last?.kind === piece.kind) last.text += piece.text;
    else joined.push({ ...piece });
  }
  return { pieces: joined, reader };
}

const text = (said: string): Piece => ({ kind: "text", text: said });
const thought = (said: string): Piece => ({ kind: "thought", text: said });
const call = (name: string, json: string): Piece => ({ kind: "call", name, arguments: json });
const rome = call("get_weather", '{"city": "Rome"}');

const CASES: [family: string, answer: string, pieces: Piece[]][] = [
  [
    "Qwen, Hermes",
    '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
    [thought("\nHm.\n"), text("\n\n"), rome],
  ],
  ["a thought, and a text", "<think>\nHm.\n</think>\n\nHello.", [thought("\nHm.\n"), text("\n\nHello.")]],
  [
    "a call after a text",
    'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
    [text("I look.\n"), rome],
  ],
  [
    "a thought without an end before a call",
    '<think>\nHm.\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
    [thought("\nHm.\n\n"), rome],
  ],
  ["a call without an end", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}', [rome]],
  [
    "two calls",
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>\n<tool_call>{"name": "get_time", "arguments": {}}</tool_call>',
    [rome, text("\n"), call("get_time", "{}")],
  ],
  [
    "Qwen3-Coder",
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
    [call("get_weather", '{"city":"Rome","days":3}')],
  ],
  [
    "Qwen3-Coder without its outer tags",
    "<function=get_weather>\n<parameter=city>\n12\n</parameter>\n</function>",
    [call("get_weather", '{"city":"12"}')],
  ],
  ["Llama 3", '<function=get_weather>{"city": "Rome"}</function>', [rome]],
  ["Llama 3.1", '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Rome"}}', [rome]],
  [
    "DeepSeek R1 and V3",
    '<think>Hm.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Rome"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    [thought("Hm."), rome],
  ],
  [
    "DeepSeek V3.1",
    'I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    [text("I look."), rome],
  ],
  [
    "DeepSeek V3.2",
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    [call("get_weather", '{"city":"Rome"}')],
  ],
  ["Mistral, in a list", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}}]', [rome]],
  [
    "Mistral, by name",
    '[THINK]Hm.[/THINK][TOOL_CALLS]get_weather{"city": "Rome"}[TOOL_CALLS]get_time[ARGS]{}',
    [thought("Hm."), rome, call("get_time", "{}")],
  ],
  [
    "GLM 4.5",
    "<think>Hm.</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
    [thought("Hm."), text("\n"), call("get_weather", '{"city":"Rome","days":3}')],
  ],
  [
    "Kimi K2",
    'I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|><|tool_calls_section_end|>',
    [text("I look."), rome],
  ],
  [
    "MiniMax M1",
    '<tool_calls>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n{"name": "get_time", "arguments": {}}\n</tool_calls>',
    [rome, call("get_time", "{}")],
  ],
  [
    "MiniMax M2",
    '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n</invoke>\n</minimax:tool_call>',
    [call("get_weather", '{"city":"Rome"}')],
  ],
  ["Granite", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rome"}}]', [rome]],
  [
    "Seed-OSS",
    "<seed:think>Hm.</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>",
    [thought("Hm."), call("get_weather", '{"city":"Rome"}')],
  ],
  [
    "Command",
    '<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Rome"}}]<|END_ACTION|>',
    [thought("Hm."), rome],
  ],
  [
    "gpt-oss",
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
    [thought("Hm."), text("Hello.")],
  ],
  [
    "gpt-oss, a call",
    '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>',
    [thought("Hm."), rome],
  ],
  ["Llama 3, bare JSON", '{"name": "get_weather", "parameters": {"city": "Rome"}}', [rome]],
  ["Llama 3.1, with a type", '{"type": "function", "name": "get_weather", "parameters": {"city": "Rome"}}', [rome]],
  [
    "several in bare JSON",
    '{"name": "get_weather", "parameters": {"city": "Rome"}}; {"name": "get_time", "parameters": {}}',
    [rome, call("get_time", "{}")],
  ],
  [
    "Llama 4, in Python's form",
    "[get_weather(city='Rome', days=3), get_time()]",
    [call("get_weather", '{"city":"Rome","days":3}'), call("get_time", "{}")],
  ],
];

describe("an answer", () => {
  it.each(CASES)("of %s is split", (_, answer, pieces) => {
    expect(read(answer).pieces).toEqual(pieces);
  });

  it("is split alike in parts of any lengths", () => {
    const lengths = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(fc.constantFrom(...CASES), lengths, ([, answer, pieces], parts) => {
        expect(read(answer, {}, parts).pieces).toEqual(pieces);
      }),
      { numRuns: 300 },
    );
  });

  it("loses no text and gains none, whatever its marks", () => {
    const part = fc.constantFrom(
      "<think>",
      "</think>",
      "\n",
      "```",
      "`",
      "a ",
      "<tool_call>",
      "</tool_call>",
      "[TOOL_CALLS]",
      "{",
      "<",
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), fc.boolean(), (parts, beginsInThought) => {
        const answer = parts.join("");
        const given = read(answer, { beginsInThought, tools: new Map() }, [1]).pieces;
        const said = given.map((piece) => ("text" in piece ? piece.text : "")).join("");
        expect(said.replaceAll(/<\/?think>/g, "")).toBe(answer.replaceAll(/<\/?think>/g, ""));
      }),
      { numRuns: 500 },
    );
  });
});

describe("a text that only quotes markup", () => {
  it.each([
    "Use the <think> tag for thoughts, and close it with </think> again.",
    "Models write <think>like this</think>\nand then they answer.",
    'For example:\n```\n<think>\nHm.\n</think>\n<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>\n```\nThat is all.',
    'Write `<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>` to call it.',
    "It begins a line:\n<think>\nand never ends.",
    'In code without fences:\n\n    <tool_call>{"name": "get_weather", "arguments": {}}</tool_call>\n\nThat is all.',
    "Use <tool_call> tags to call get_weather.",
    'The tag <tool_call>{"name": "other", "arguments": {}}</tool_call> names no tool.',
    '{"name": "get_weather", "description": "The weather.", "parameters": {"type": "object"}}',
    '{"name": "Ada", "parameters": {}}',
    '[{"name": "get_weather"}]',
    "[get_weather(1)](https://example.com)",
    "[1, 2, 3]",
    "{",
    "a < b, a[0] <= c, <b>bold</b>, [link](url), List<think>",
  ])("stays as it is: %j", (said) => {
    for (const lengths of [[said.length], [1], [3, 7]]) {
      const { pieces, reader } = read(said, {}, lengths);
      expect(pieces).toEqual([text(said)]);
      expect(reader.unread).toBeUndefined();
      expect(reader.found).toEqual({ thoughts: false, calls: false });
    }
  });

  it("goes on with a text: the end of a thought stays, and a call is a call", () => {
    const said = 'Hm.\n</think>\nHello.\n<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>';
    const { pieces, reader } = read(said, { continues: true }, [4]);
    expect(pieces).toEqual([text("Hm.\n</think>\nHello.\n"), rome]);
    expect(reader.unread).toBeUndefined();
  });

  it("in a thought is a thought", () => {
    const said = 'I could write <tool_call>{"name": "get_weather", "arguments": {}}</tool_call>, but no.';
    expect(read(`<think>${said}</think>Hello.`, {}, [4]).pieces).toEqual([thought(said), text("Hello.")]);
  });

  it("where no tool is offered stays, too", () => {
    const said = '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>';
    expect(read(said, { tools: new Map() }).pieces).toEqual([text(said)]);
  });
});

describe("a thought", () => {
  it("is given while it is written", () => {
    const reader = new MarkupReader({ tools, beginsInThought: false });
    expect(reader.push("<think>Hm")).toEqual([thought("Hm")]);
    expect(reader.push(", yes.")).toEqual([thought(", yes.")]);
    expect(reader.push("</think>Hello")).toEqual([text("Hello")]);
  });

  it("that the prompt begins is noticed at its end; in later answers it is a thought", () => {
    const said = "Hm.\n</think>\n\nHello.";
    const first = read(said);
    expect(first.reader.unread).toBe("thought");
    expect(read(said, { beginsInThought: true }, [2]).pieces).toEqual([thought("Hm.\n"), text("\n\nHello.")]);
    expect(read("Hello.", { beginsInThought: true }, [2]).pieces).toEqual([text("Hello.")]);
  });

  it("between texts is found once it has ended", () => {
    const said = "One.\n<think>Hm.</think>\nTwo.";
    expect(read(said, {}, [1]).pieces).toEqual([text("One.\n"), thought("Hm."), text("\nTwo.")]);
  });

  it("is a quote where the server gives thoughts apart", () => {
    const reader = new MarkupReader({ tools, beginsInThought: true });
    expect(reader.push("a")).toEqual([]);
    expect(reader.ignoreThoughts()).toEqual([text("a")]);
    expect(reader.push("\n<think>\nb</think>\n")).toEqual([text("\n<think>\nb</think>\n")]);
    expect(reader.unread).toBeUndefined();
  });
});

describe("a call that cannot be read", () => {
  it.each([
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": \n</tool_call>',
    '[TOOL_CALLS]get_weather{"city": ',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city"',
    "<tool_call>get_weather\n<arg_key>city</arg_key>",
  ])("and names a tool is a call with invalid arguments: %j", (said) => {
    const { pieces } = read(said, {}, [5]);
    expect(pieces).toMatchObject([{ kind: "call", name: "get_weather" }]);
    expect(() => JSON.parse((pieces[0] as { arguments: string }).arguments)).toThrow();
  });

  it("and names no tool is noticed by its token", () => {
    expect(read("<|tool_calls_section_begin|>nonsense").reader.unread).toBe("call");
  });

  it("in bare JSON, too", () => {
    const { pieces } = read('{"name": "get_weather", "parameters": {"city": ', {}, [5]);
    expect(pieces).toMatchObject([{ kind: "call", name: "get_weather" }]);
  });

  it("because it is truncated stays text", () => {
    const reader = new MarkupReader({ tools, beginsInThought: false });
    const said = '<tool_call>\n{"name": "get_weather", "argu';
    reader.push(said);
    expect(reader.end(true)).toEqual([text(said)]);
  });
});

it("costs little, whatever the text", () => {
  for (const said of [
    "<think>\n",
    "a\n<think>\n",
    "<tool_call>",
    "<tool_call>{",
    "[TOOL_CALLS]",
    "<function=a>",
    "`<think>`",
  ]) {
    const all = said.repeat(20_000);
    const { pieces } = read(all, {}, [64]);
    expect(pieces.length).toBeLessThan(50);
  }
});
