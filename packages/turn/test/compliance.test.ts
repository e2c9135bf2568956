import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import { disregarded } from "@responses-edge/turn/decide";
import { newTurnState } from "@responses-edge/turn/state";
import { describe, expect, it } from "vitest";

/** The output of a turn, compared with its request. */

const call = (name: string, status = "completed") =>
  ({ type: "function_call", id: `fc_${name}`, call_id: "c", name, arguments: "{}", status }) as OutputItem;
const message = (text: string, phase?: string) =>
  ({
    ...{ type: "message", id: "msg", role: "assistant", status: "completed", ...(phase && { phase }) },
    content: [{ type: "output_text", text, annotations: [] }],
  }) as unknown as OutputItem;
const refusal = {
  ...{ type: "message", id: "msg", role: "assistant", status: "completed" },
  content: [{ type: "refusal", refusal: "No." }],
} as unknown as OutputItem;

const fn = (name: string) => ({ type: "function", name, parameters: { type: "object" }, strict: false });
const tools = [fn("a"), fn("b")];
const named = { tools, tool_choice: { type: "function", name: "a" } };
const required = { tools, tool_choice: "required" };
const format = { type: "json_schema", name: "n", schema: { type: "object", required: ["x"] }, strict: true };
const json = { text: { format } };

function verdict(given: object, ...output: OutputItem[]): string | undefined {
  const request = { model: "m", input: "?", ...given } as CreateRequest;
  return disregarded(request, { request }, { ...newTurnState(), output });
}

describe("fulfils its request", () => {
  it.each<[string, object, OutputItem[]]>([
    ["a text where nothing is asked for", {}, [message("Hello")]],
    ["nothing at all where nothing is asked for", {}, []],
    ["a call of an offered tool", { tools }, [call("a")]],
    ["the named call", named, [call("a")]],
    ["any call where one is required", required, [message("I call it."), call("b")]],
    ["a call that was cut off, beside the named one", named, [call("b", "incomplete"), call("a")]],
    ["a text without calls where none is required", { tools }, [message("Hello")]],
    ["a text of its schema", json, [message('{"x":1}')]],
    ["a text of its schema after a word before it", json, [message("Let me see.", "commentary"), message('{"x":1}')]],
    ["a refusal where a schema is asked for", json, [refusal]],
    ["no text where log probabilities are asked for", { include: ["message.output_text.logprobs"] }, [message("")]],
    ["a call where a schema is asked for", { ...json, tools }, [call("a")]],
    ["an object", { text: { format: { type: "json_object" } } }, [message("{}")]],
    ["one of the choices", { structured_outputs: { choice: ["yes", "no"] } }, [message("no")]],
    ["a text that a stop string may have cut", { ...json, stop: ["}"] }, [message('{"x":1')]],
    ["the client's own regular expression, unseen", { structured_outputs: { regex: "a+" } }, [message("b")]],
  ])("%s", (_, request, output) => {
    expect(verdict(request, ...output)).toBeUndefined();
  });
});

describe("does not match", () => {
  it.each<[string, object, OutputItem[], string]>([
    ["a named choice: a text", named, [message("Hello")], "'tool_choice': it does not call the tool 'a'"],
    ["a named choice: another call", named, [call("b")], "'tool_choice': it does not call the tool 'a'"],
    ["a named choice: a call that was cut off", named, [call("a", "incomplete")], "'tool_choice'"],
    ["a required choice: a text", required, [message("Hello")], "'tool_choice': it does not call a tool"],
    [
      "what is to be included",
      { include: ["message.output_text.logprobs"] },
      [message("Hello")],
      "'include': it has no log probabilities",
    ],
    ["a required choice: nothing", required, [], "'tool_choice': it does not call a tool"],
    ["its tools: a call that was not offered", { tools }, [call("c")], "'tools': it calls 'c', which was not offered"],
    ["its tools: a call where there are none", {}, [call("c")], "'tools': it calls 'c'"],
    ["its schema: JSON", json, [message('{"y":1}')], "'text.format': its text does not match the schema 'n'"],
    ["its schema: no JSON", json, [message("Hello")], "'text.format'"],
    ["its schema: nothing", json, [], "'text.format'"],
    ["its schema: a word before the text alone", json, [message('{"x":1}', "commentary")], "'text.format'"],
    ["an object: a list", { text: { format: { type: "json_object" } } }, [message("[]")], "no JSON object"],
    ["choices", { structured_outputs: { choice: ["yes"] } }, [message("no")], "'structured_outputs.choice'"],
    [
      "a schema of vLLM's own",
      { structured_outputs: { json: '{"type":"array"}' } },
      [message("{}")],
      "'structured_outputs.json'",
    ],
    ["an object of vLLM's own", { structured_outputs: { json_object: true } }, [message("1")], "'structured_outputs'"],
  ])("%s", (_, request, output, why) => {
    expect(verdict(request, ...output)).toContain(why);
  });
});

it("is the last text that must match a format: a repeated text is not checked", () => {
  const request = { model: "m", input: "?", ...json } as unknown as CreateRequest;
  const output = [{ ...message("Hello"), id: "old" }, message('{"x":1}')] as OutputItem[];
  const state = { ...newTurnState(), output, superseded: new Set(["old"]) };
  expect(disregarded(request, { request }, state)).toBeUndefined();
});
