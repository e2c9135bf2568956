import type { CustomTool, Response, ResponseCustomToolCall } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { APPLY_PATCH } from "../../../packages/grammar/test/grammar-cases.ts";
import { answerOf, expectCompleted, type Fields, finalOf, type Subject } from "./subject.ts";

const custom = (name: string, syntax: "lark" | "regex", definition: string): CustomTool => ({
  type: "custom",
  name,
  description: "Takes text.",
  format: { type: "grammar", syntax, definition },
});

const patch = custom("apply_patch", "lark", APPLY_PATCH);
const date = custom("set_date", "regex", "^\\d{4}-\\d{2}-\\d{2}$");
/** Recursive rules: no regular expression can express them. */
const lists = custom("keep", "lark", 'start: list\nlist: "(" (list ("," list)*)? ")"\n');
const strictFunction = {
  type: "function" as const,
  name: "get_weather",
  parameters: {
    type: "object",
    properties: { city: { type: "string", enum: ["Paris"] } },
    required: ["city"],
    additionalProperties: false,
  },
  strict: true,
};

const PATCH = '*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-x\n+y <| "z"\\n é\n same\n*** End Patch\n';
const IS_PATCH =
  /^\*\*\* Begin Patch\n(?:\*\*\* (?:Add File: .+\n(?:\+.*\n)+|Delete File: .+\n|Update File: .+\n(?:\*\*\* Move to: .+\n)?(?:(?:@@(?: .+)?|[-+ ].*)\n)*(?:\*\*\* End of File\n)?))+\*\*\* End Patch\n?$/;

function inputsOf({ output }: Pick<Response, "output">): ResponseCustomToolCall[] {
  return output.filter((item) => item.type === "custom_tool_call");
}

/** The grammars of custom tools: the model's intended output, and the output that the grammar allows. */
export function grammars(subject: () => Subject): void {
  const forced: [name: string, fields: Fields][] = [
    ["by its name", { tools: [patch, strictFunction], tool_choice: { type: "custom", name: "apply_patch" } }],
    ["as the only tool", { tools: [patch], tool_choice: "required" }],
  ];
  describe.each(forced)("Codex's patches, forced %s", (_, fields) => {
    it("are the model's text, as JSON and as a stream", async () => {
      const { ask, stream } = subject();
      const speech = { input: { name: "apply_patch", text: PATCH, isForced: true } };
      const response = await ask(speech, { ...fields, max_output_tokens: 600 });
      expectCompleted(response);
      expect(inputsOf(response)).toMatchObject([{ name: "apply_patch", input: PATCH, status: "completed" }]);
      const events = await stream(speech, { ...fields, max_output_tokens: 600 });
      const deltas = events.map((event) => (event.type === "response.custom_tool_call_input.delta" ? event.delta : ""));
      expect(deltas.join("")).toBe(PATCH);
      expect(deltas.filter((delta) => delta !== "").length).toBeGreaterThan(1);
      expect(inputsOf(finalOf(events))).toMatchObject([{ input: PATCH }]);
    });

    it("are valid patches, whatever the model would output", async () => {
      const speech = { input: { name: "apply_patch", text: "Let me see.\n+x", isForced: true } };
      const response = await subject().ask(speech, { ...fields, max_output_tokens: 300 });
      const [call] = inputsOf(response);
      expect(inputsOf(response)).toHaveLength(1);
      if (response.status === "completed") expect(call?.input).toMatch(IS_PATCH);
      // A small random model may write endless names.
      else expect(call?.input.slice(0, 20)).toBe("*** Begin Patch\n*** ");
    });
  });

  it("a regular expression binds a call that the model may make", async () => {
    const { ask } = subject();
    const tools = [date, strictFunction];
    const said = await ask({ input: { name: "set_date", text: "2026-11-22" } }, { tools, max_output_tokens: 300 });
    expectCompleted(said);
    expect(inputsOf(said)).toMatchObject([{ name: "set_date", input: "2026-11-22" }]);
    const wrong = await ask({ input: { name: "set_date", text: "tomorrow" } }, { tools, max_output_tokens: 300 });
    expect(inputsOf(wrong).length).toBeGreaterThan(0);
    for (const { input } of inputsOf(wrong)) expect(input).toMatch(/^\d{4}-\d{2}-\d{2}$/);
  });

  it("a Lark grammar constrains a call that gpt-oss may make, and a chat model learns that its call does not match", async () => {
    const { ask, engine } = subject();
    const tools = [patch, lists, strictFunction];
    const said = await ask({ input: { name: "keep", text: "((),(()))" } }, { tools, max_output_tokens: 300 });
    expectCompleted(said);
    expect(inputsOf(said)).toMatchObject([{ name: "keep", input: "((),(()))" }]);
    const wrong = await ask({ input: { name: "keep", text: "no list" } }, { tools, max_output_tokens: 300 });
    const inputs = inputsOf(wrong).map(({ input }) => input);
    if (engine === "chat") {
      expect(inputs).toEqual([]);
      expect(answerOf(wrong)).toContain("does not match the tool's grammar");
      return;
    }
    // A small random model may spell the end of its message with letters, and xgrammar takes that as the end.
    for (const input of inputs) expect(input).toMatch(/^[(),]*(?:<\|end\|>)?$/);
    expect(inputs.length).toBeGreaterThan(0);
  });

  it("a model that may call can also answer freely", async () => {
    const response = await subject().ask({ text: "No need." }, { tools: [patch, date] });
    expectCompleted(response);
    expect(response.output_text.trim()).toBe("No need.");
  });
}
