import { expect, test } from "vitest";
import { Hints } from "../../dev/simulator/hints.ts";
import { isObject, type Json, type JsonObject } from "../../dev/simulator/json.ts";
import { fillSchema } from "../../dev/simulator/schema-filler.ts";
import { chat, list, message, object, tool, user } from "./support.ts";

/** The conversations that the simulator knows, and the arguments that it takes from the user's text. */

/** The first call of an answer, as the assistant's message and the result that a client adds. */
function answered(assistant: JsonObject, output: string): Json[] {
  const [call] = list(assistant.tool_calls);
  return [assistant, { role: "tool", tool_call_id: object(call).id ?? null, content: output }];
}

function argumentsIn(assistant: JsonObject): unknown {
  const [call] = list(assistant.tool_calls);
  return JSON.parse(String(object(object(call).function).arguments));
}

test("a question for the weather is a thought and a call, then a table and code with the function's output", async () => {
  const question = user("What is the weather in New York?");
  const tools = [tool("get_weather", { place: { type: "string" } })];
  const first = message(await chat({ messages: question, tools }));
  expect(first.reasoning).toContain("the weather in New York");
  expect(argumentsIn(first)).toEqual({ place: "New York" });
  const { content } = message(await chat({ messages: [...question, ...answered(first, "sun | 24 °C")], tools }));
  expect(content).toContain("| City | Weather |\n|:--|:--|\n| New York | sun \\| 24 °C |\n");
  expect(content).toContain('```json\n{\n  "type": "function_call_output",');
  // Without the function the question is like any other.
  expect(message(await chat({ messages: question })).content).toBe("You said: What is the weather in New York?");
});

test("a question about files is a search, then a table that cites each passage", async () => {
  const question = user("What do my files say about owls?");
  const tools = [tool("file_search", { queries: { type: "array", items: { type: "string" } } })];
  const first = message(await chat({ messages: question, tools }));
  expect(argumentsIn(first)).toEqual({ queries: ["owls"] });
  const found = "【0:0†source】 file-1 a.md\n# Birds\n\nSome **owls** hoot.\n\n【0:1†source】 file-2 b.md\nNothing.";
  const asked = async (output: string) =>
    message(await chat({ messages: [...question, ...answered(first, output)], tools })).content;
  expect(await asked(found)).toBe(
    "Your files say this about **owls**:\n\n| File | Passage |\n|:--|:--|\n| a.md | Some owls hoot. 【0:0†source】 |\n| b.md | Nothing. 【0:1†source】 |",
  );
  expect(await asked("No results.")).toBe("Your files say nothing about **owls**.");
});

test("the console's question under a schema has its answer, if the schema admits it", async () => {
  const format = (name: string) => ({
    type: "json_schema",
    json_schema: {
      name: "a",
      schema: { type: "object", properties: { [name]: { type: "string" } }, required: [name] },
    },
  });
  const asked = async (name: string) =>
    message(await chat({ messages: user("Which is the largest owl?"), response_format: format(name) })).content;
  expect(await asked("answer")).toBe(`{"answer":"Blakiston's fish owl"}`);
  expect(await asked("bird")).toBe('{"bird":"bird"}');
});

const text = { type: "string" };
test.each<[string, string, JsonObject, JsonObject]>([
  [
    "Book a flight from Lisbon to São Paulo for 2. Use book.",
    "book",
    { from: text, to: text, seats: { type: "integer" } },
    { from: "Lisbon", to: "São Paulo", seats: 2 },
  ],
  ["What is 2 + 3.5? Use add.", "add", { a: { type: "number" }, b: { type: "number" } }, { a: 2, b: 3.5 }],
  [
    "Use get_weather for Köln in fahrenheit.",
    "get_weather",
    { city: text, unit: { enum: ["celsius", "fahrenheit"] } },
    { city: "Köln", unit: "fahrenheit" },
  ],
  [
    "Which owls hoot? Use search.",
    "search",
    { query: text, limit: { type: "integer", maximum: 5 } },
    { query: "Which owls hoot?", limit: 1 },
  ],
  ["Use get_weather.", "get_weather", { city: text, days: { type: "integer", minimum: 3 } }, { city: "city", days: 3 }],
])("the arguments of a call are in the text where it has them: %s", (said, name, properties, filled) => {
  expect(fillSchema({ type: "object", properties }, new Hints(said, name))).toEqual(filled);
});

test("hints keep the bounds of a schema", () => {
  const schema = {
    type: "object",
    properties: { city: { type: "string", maxLength: 3 }, n: { type: "integer", maximum: 9 } },
  };
  const filled = fillSchema(schema, new Hints("In Paris 25 owls hoot, or 7.", "f"));
  expect(isObject(filled) && filled).toEqual({ city: "Par", n: 7 });
});
