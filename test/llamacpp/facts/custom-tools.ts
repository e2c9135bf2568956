import type { CustomTool } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { callsOf, expectCompleted, type Fields, messageTextOf, type Subject } from "../../vllm/facts/subject.ts";
import { expectKept, inputsOf, responseOf, WAYS } from "./promises.ts";

const custom = (name: string, syntax: "lark" | "regex", definition: string): CustomTool => ({
  type: "custom",
  name,
  description: "Takes text.",
  format: { type: "grammar", syntax, definition },
});

interface Grammar {
  tool: CustomTool;
  /** An input that matches the grammar, and one that does not. */
  good: string;
  bad: string;
  pattern: RegExp;
}

const GRAMMARS: Record<string, Grammar> = {
  "a regex": {
    tool: custom("set_date", "regex", "^\\d{4}-\\d{2}-\\d{2}$"),
    good: "2026-11-22",
    bad: "tomorrow",
    pattern: /^\d{4}-\d{2}-\d{2}$/,
  },
  "a regex of words": {
    tool: custom("answer", "regex", "(yes|no|maybe( not)?)"),
    good: "maybe not",
    bad: "perhaps",
    pattern: /^(?:yes|no|maybe(?: not)?)$/,
  },
  Lark: {
    tool: custom("set_date", "lark", 'start: YEAR "-" DAY\nYEAR: /[0-9]{4}/\nDAY: /[0-3][0-9]/\n'),
    good: "2026-22",
    bad: "tomorrow",
    pattern: /^\d{4}-[0-3]\d$/,
  },
  "Lark that uses itself": {
    tool: custom("keep", "lark", 'start: list\nlist: "(" (list ("," list)*)? ")"\n'),
    good: "((),(()))",
    bad: "no list",
    pattern: /^[(),]+$/,
  },
};

const strictFunction = {
  type: "function" as const,
  name: "get_weather",
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
  strict: true,
};

const LIMIT = { max_output_tokens: 600 };

/** Inputs of custom tools: each completed one matches its grammar, whether the server enforces the grammar or not. */
export function customTools(subject: () => Subject): void {
  describe.each(Object.entries(GRAMMARS))("a grammar in %s", (_, { tool, good, bad, pattern }) => {
    const forced: [name: string, fields: Fields][] = [
      ["by its name", { tools: [tool, strictFunction], tool_choice: { type: "custom", name: tool.name } }],
      ["as the only tool, required", { tools: [tool], tool_choice: "required" }],
    ];

    describe.each(WAYS)("%s", (way) => {
      it.each(forced)("forced %s: an input that matches it is the call's", async (__, fields) => {
        const speech = { input: { name: tool.name, text: good, isForced: true } };
        const response = await responseOf(subject(), way, speech, { ...fields, ...LIMIT });
        expectCompleted(response);
        expect(inputsOf(response)).toMatchObject([{ name: tool.name, input: good, status: "completed" }]);
        expect(messageTextOf(response).trim()).toBe("");
      });

      it.each(forced)("forced %s: no other input is completed", async (__, fields) => {
        const speech = { input: { name: tool.name, text: bad, isForced: true } };
        const response = await responseOf(subject(), way, speech, { ...fields, ...LIMIT });
        for (const { input, status } of inputsOf(response)) if (status === "completed") expect(input).toMatch(pattern);
        expectKept(response, (kept) => expect(inputsOf(kept)).toHaveLength(1));
      });

      it.each(forced)("forced %s: the tags of a call are not the input", async (__, fields) => {
        // The output of an unconstrained model: its tags were treated as the input.
        const speech = { input: { name: tool.name, text: good } };
        const response = await responseOf(subject(), way, speech, { ...fields, ...LIMIT });
        for (const { input, status } of inputsOf(response)) if (status === "completed") expect(input).toMatch(pattern);
        expectKept(response, (kept) => expect(inputsOf(kept)).toHaveLength(1));
      });

      it("required beside a function: an input that matches it is the call's", async () => {
        const speech = { input: { name: tool.name, text: good } };
        const fields: Fields = { tools: [tool, strictFunction], tool_choice: "required", ...LIMIT };
        const response = await responseOf(subject(), way, speech, fields);
        expectCompleted(response);
        expect(inputsOf(response)).toMatchObject([{ name: tool.name, input: good }]);
      });

      it("auto: an input that matches it is the call's", async () => {
        const speech = { input: { name: tool.name, text: good } };
        const response = await responseOf(subject(), way, speech, { tools: [tool, strictFunction], ...LIMIT });
        expectCompleted(response);
        expect(inputsOf(response)).toMatchObject([{ name: tool.name, input: good }]);
      });

      it("auto: no other input is completed", async () => {
        const speech = { input: { name: tool.name, text: bad } };
        const response = await responseOf(subject(), way, speech, { tools: [tool, strictFunction], ...LIMIT });
        for (const { input, status } of inputsOf(response)) if (status === "completed") expect(input).toMatch(pattern);
        expect(callsOf(response)).toEqual([]);
      });
    });
  });

  it("a custom tool without a grammar accepts any text", async () => {
    const tools: CustomTool[] = [{ type: "custom", name: "note", description: "Takes text." }];
    const response = await subject().ask({ input: { name: "note", text: "two\nlines" } }, { tools });
    expectCompleted(response);
    expect(inputsOf(response)).toMatchObject([{ name: "note", input: "two\nlines" }]);
  });
}
