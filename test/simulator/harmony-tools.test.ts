import { expect, test } from "vitest";
import type { HarmonyMessage } from "../../dev/simulator/harmony-prompt.ts";
import { builtinsOf, functionsOf, responseSchemaOf } from "../../dev/simulator/harmony-tools.ts";
import { fillSchema } from "../../dev/simulator/schema-filler.ts";

function message(role: string, content: string): HarmonyMessage {
  const none = { name: undefined, recipient: undefined, channel: undefined, contentType: undefined };
  return { role, content, at: 0, state: "closed", ...none };
}

function filled(type: string): unknown {
  const content = `# Tools\n\n## functions\n\nnamespace functions {\n\ntype f = (_: ${type}) => any;\n\n} // namespace functions`;
  return functionsOf([message("developer", content)]).map(({ schema }) => fillSchema(schema))[0];
}

test.each<[string, string, unknown]>([
  ["no properties", "{\n}", {}],
  ["anything", "any", {}],
  ["scalars", "{\na: string,\nb?: number,\nc: boolean,\nd: any,\n}", { a: "a", b: 1, c: true, d: "d" }],
  ["choices", '{\na: "x y" | "b // c", // default: x y\n}', { a: "x y" }],
  ["null", "{\na: null | string,\nb: number | null,\n}", { a: "a", b: 1 }],
  ["arrays", "{\na: string[],\nb: Array<any>,\nc: number[][],\n}", { a: ["a"], b: ["b"], c: [[1]] }],
  ["arrays of choices", '{\na: "x" | "y"[],\nb: number | null[][],\n}', { a: ["x"], b: [[1]] }],
  ["variants", "{\n// About.\na:\n | number // one\n | string[]\n,\nb: string,\n}", { a: 1, b: "b" }],
  [
    "odd names",
    "{\nd-e?: string,\ncity name: string,\n__proto__: number,\n}",
    JSON.parse('{"d-e":"d-e","city name":"city name","__proto__":1}'),
  ],
  ["a description of two lines", "{\n// One {\ntwo, three\na: string,\n}", { a: "a" }],
  ["nonsense", '{"[|', {}],
])("arguments of %s", (_, type, expected) => {
  expect(filled(type)).toEqual(expected);
});

test("functions, built-in tools and the response format are found in their sections", () => {
  const functions =
    "namespace functions {\n\n// type no = () => any;\ntype a-b.c = () => any;\n\n} // namespace functions";
  expect(functionsOf([message("user", functions), message("developer", functions)])).toEqual([
    { name: "a-b.c", schema: { type: "object", properties: {} } },
  ]);
  expect(
    builtinsOf([message("system", "# Tools\n\n## browser\n\n## python"), message("user", "## container")]),
  ).toEqual(["browser", "python"]);
  const formats = '# Response Formats\n\n## x\n\n// One.\n{"type":"string"}';
  expect(responseSchemaOf([message("developer", formats)])).toEqual({ type: "string" });
  expect(responseSchemaOf([message("developer", `${formats}…`)])).toBeUndefined();
});
