import { isJson, isJsonObject, type JsonObject, parseArguments } from "@responses-edge/responses-api/json";
import type { MarkedCall } from "./families.ts";
import { elementsOf, membersOf, pastSpace, valueEnd } from "./json-values.ts";
import { pythonCalls } from "./python-calls.ts";

/**
 * Calls in the markup of model families, as a model server without a parser gives them. A text is a call only if all of
 * it can be read, and it names a tool of the prompt.
 */

/** The schemas of a prompt's tools, by the names that the model knows. */
export type MarkedTools = ReadonlyMap<string, JsonObject | null>;

/** Members of an object that is a call, and nothing else, without a tag around it. */
const BARE_MEMBERS = new Set(["type", "id", "name", "arguments", "parameters"]);

/** The beginning of an answer that is calls without a tag, with the name of the first; and a text that may become one. */
const BARE_BEGINNING =
  /^\s*(?:\[?\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([\w.-]+)"|\[\s*([\w.-]+)\()/;
const MAY_BE_BARE =
  /^\s*(?:\[?\s*(?:\{\s*(?:"(?:[a-z]{0,4}|(?:name|type)"\s*(?::\s*(?:"[\w.-]*(?:"\s*,?\s*(?:"(?:[a-z]{0,4}|name"\s*(?::\s*(?:"[\w.-]*)?)?))?)?)?)?))?)?|\[\s*[\w.-]*)$/;

/** Longest beginning that is examined, in characters. */
const MAX_BEGINNING = 256;

/** Tells whether an answer begins as calls without tags do, with the name of a tool. */
export function bareBeginning(answer: string, tools: MarkedTools): "none" | "possible" | "certain" {
  if (tools.size === 0) return "none";
  if (answer.length < MAX_BEGINNING && MAY_BE_BARE.test(answer)) return "possible";
  const [, inJson, inPython] = BARE_BEGINNING.exec(answer) ?? [];
  const name = inJson ?? inPython;
  return name !== undefined && tools.has(name) ? "certain" : "none";
}

/**
 * The calls of an answer that is nothing but calls, without tags: JSON (Llama 3), or Python's form (Llama 4, Olmo). One
 * in broken JSON has arguments that are none, unless it is `isTruncated`. Undefined for any other answer.
 */
export function bareCallsIn(answer: string, tools: MarkedTools, isTruncated: boolean): MarkedCall[] | undefined {
  const text = answer.trim();
  const name = BARE_BEGINNING.exec(text)?.[1];
  if (name !== undefined && !isTruncated && !isJson(text) && !jsonCalls(text)) {
    return [{ name, arguments: `not JSON: ${text}` }];
  }
  const calls = name === undefined ? pythonCalls(text) : jsonCalls(text, isBareCall);
  return calls && calls.length > 0 && calls.every((call) => tools.has(call.name)) ? calls : undefined;
}

function isBareCall(members: ReadonlyMap<string, string>): boolean {
  const given = members.get("parameters") ?? members.get("arguments");
  if (given === undefined || !members.keys().every((key) => BARE_MEMBERS.has(key))) return false;
  // A tool's own description has a schema.
  return !/^\{\s*"(?:type"\s*:\s*"object|properties)"/.test(given);
}

/** The calls in the inside of a block of calls; undefined if it is anything else. */
export function callsIn(block: string, tools: MarkedTools): MarkedCall[] | undefined {
  const text = block.replaceAll("｜DSML｜", "").trim();
  for (const read of FORMS) {
    const calls = read(text, tools);
    if (calls && calls.length > 0) return calls.every(({ name }) => tools.has(name)) ? calls : undefined;
  }
  return undefined;
}

type Form = (text: string, tools: MarkedTools) => MarkedCall[] | undefined;

/** In the order in which they are tried: JSON comes last, because others contain it. */
const FORMS: readonly Form[] = [
  ...[kimi, deepSeek, harmony, functionTags, invokeTags, glm, mistral],
  (text) => jsonCalls(text),
];

/** The texts between tags, one after another; the last may lack its end. */
function between(text: string, begin: string, end: string): string[] {
  const found: string[] = [];
  for (let at = text.indexOf(begin); at >= 0; ) {
    const from = at + begin.length;
    const to = text.indexOf(end, from);
    found.push(text.slice(from, to < 0 ? undefined : to));
    at = to < 0 ? -1 : text.indexOf(begin, to + end.length);
  }
  return found;
}

/** A call with arguments that are a JSON object; undefined for any other. */
function withJson(name: string, json: string): MarkedCall | undefined {
  return parseArguments(json) === undefined ? undefined : { name, arguments: json.trim() === "" ? "{}" : json };
}

/** All of some calls, or undefined if one cannot be read. */
function all(calls: readonly (MarkedCall | undefined)[]): MarkedCall[] | undefined {
  const read = calls.filter((call) => call !== undefined);
  return read.length === calls.length ? read : undefined;
}

/** Kimi K2: `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`. */
function kimi(text: string): MarkedCall[] | undefined {
  return all(
    between(text, "<|tool_call_begin|>", "<|tool_call_end|>").map((call) => {
      const [id = "", json = ""] = call.split("<|tool_call_argument_begin|>");
      return withJson(
        id
          .trim()
          .replace(/^functions\./, "")
          .replace(/:\d+$/, ""),
        json.trim(),
      );
    }),
  );
}

/**
 * DeepSeek: `<｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`, or before V3.1 the type `function`, and after
 * it the name and the arguments in a block of code.
 */
function deepSeek(text: string): MarkedCall[] | undefined {
  return all(
    between(text, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>").map((call) => {
      const [first = "", rest = ""] = call.split("<｜tool▁sep｜>");
      if (first.trim() !== "function") return withJson(first.trim(), rest.trim());
      const [name = "", ...lines] = rest.trim().split("\n");
      return withJson(
        name.trim(),
        lines
          .join("\n")
          .replace(/^\s*```(?:json)?|```\s*$/g, "")
          .trim(),
      );
    }),
  );
}

/** gpt-oss: `functions.name <|constrain|>json<|message|>{…}`, after the recipient's `to=`. */
function harmony(text: string): MarkedCall[] | undefined {
  const [header = "", json] = text.split("<|message|>");
  const name = /^functions\.([\w.-]+)/.exec(header)?.[1];
  return name === undefined || json === undefined ? undefined : all([withJson(name, json.trim())]);
}

/** Qwen3-Coder and Seed-OSS: `<function=name><parameter=key>value</parameter></function>`; Llama: with JSON within. */
function functionTags(text: string, tools: MarkedTools): MarkedCall[] | undefined {
  return all(
    between(text, "<function=", "</function>").map((inner) => {
      const end = inner.indexOf(">");
      if (end < 0) return undefined;
      const name = inner.slice(0, end).trim();
      const body = inner.slice(end + 1);
      if (!body.includes("<parameter=")) return withJson(name, body.trim());
      const values = between(body, "<parameter=", "</parameter>").map((parameter): [string, string] => {
        const at = parameter.indexOf(">");
        return [parameter.slice(0, at).trim(), parameter.slice(at + 1)];
      });
      return ofValues(name, values, tools);
    }),
  );
}

/** MiniMax M2 and DeepSeek V3.2: `<invoke name="name"><parameter name="key">value</parameter></invoke>`. */
function invokeTags(text: string, tools: MarkedTools): MarkedCall[] | undefined {
  return all(
    between(text, '<invoke name="', "</invoke>").map((inner) => {
      const end = inner.indexOf('">');
      if (end < 0) return undefined;
      const values = between(inner.slice(end + 2), '<parameter name="', "</parameter>").map(
        (parameter): [string, string] => {
          const quote = parameter.indexOf('"');
          return [parameter.slice(0, quote), parameter.slice(parameter.indexOf(">", quote) + 1)];
        },
      );
      return ofValues(inner.slice(0, end), values, tools);
    }),
  );
}

/** GLM: the name, then `<arg_key>key</arg_key><arg_value>value</arg_value>`. */
function glm(text: string, tools: MarkedTools): MarkedCall[] | undefined {
  const name = text.split("<arg_key>", 1)[0]?.trim() ?? "";
  if (!tools.has(name)) return undefined;
  const keys = between(text, "<arg_key>", "</arg_key>");
  const values = between(text, "<arg_value>", "</arg_value>");
  if (keys.length !== values.length) return undefined;
  return all([
    ofValues(
      name,
      keys.map((key, index): [string, string] => [key.trim(), values[index] ?? ""]),
      tools,
    ),
  ]);
}

/** A call whose arguments are texts by their names: each gets the type that the tool's schema gives it. */
function ofValues(name: string, values: readonly [string, string][], tools: MarkedTools): MarkedCall {
  const properties = tools.get(name)?.properties;
  const typed = values.map(([key, text]) => {
    const value = text.replace(/^\n|\n$/g, "");
    const schema = isJsonObject(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
    return [key, isJsonObject(schema) && schema.type !== "string" ? literal(value) : value];
  });
  return { name, arguments: JSON.stringify(Object.fromEntries(typed)) };
}

const LITERALS: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ["True", true],
  ["False", false],
  ["None", null],
]);

/** A value as JSON or as Python writes it; any other text is a string. */
function literal(text: string): unknown {
  const trimmed = text.trim();
  if (LITERALS.has(trimmed)) return LITERALS.get(trimmed);
  try {
    return JSON.parse(trimmed);
  } catch {
    return text;
  }
}

/** Mistral: `name{…}`, `name[ARGS]{…}`, `name[CALL_ID]id[ARGS]{…}`, several one after another. */
function mistral(text: string): MarkedCall[] | undefined {
  const calls: MarkedCall[] = [];
  const head = /\s*(?:\[TOOL_CALLS\])?\s*([\w.-]+)\s*(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\])?\s*(?=\{)/y;
  for (let at = 0; at < text.length; at = pastSpace(text, at)) {
    head.lastIndex = at;
    const name = head.exec(text)?.[1];
    if (name === undefined) return undefined;
    const to = valueEnd(text, head.lastIndex);
    const call = to < 0 ? undefined : withJson(name, text.slice(head.lastIndex, to));
    if (!call) return undefined;
    calls.push(call);
    at = to;
  }
  return calls;
}

/** Objects with a name and arguments, alone, in a list, or one after another: Hermes, Qwen, Llama, Granite, Mistral. */
function jsonCalls(
  text: string,
  isCall: (members: ReadonlyMap<string, string>) => boolean = () => true,
): MarkedCall[] | undefined {
  const calls: (MarkedCall | undefined)[] = [];
  for (let at = 0; at < text.length; ) {
    const to = text[at] === "{" || text[at] === "[" ? valueEnd(text, at) : -1;
    if (to < 0) return undefined;
    const value = text.slice(at, to);
    const objects = value.startsWith("[") ? elementsOf(value) : [value];
    if (!objects) return undefined;
    calls.push(...objects.map((object) => fromObject(object, isCall)));
    // Llama separates calls by semicolons, Mistral repeats its token.
    at = pastSpace(text, to);
    if (text[at] === ";" || text[at] === ",") at = pastSpace(text, at + 1);
    if (text.startsWith("[TOOL_CALLS]", at)) at = pastSpace(text, at + "[TOOL_CALLS]".length);
  }
  return all(calls);
}

const NAMES = ["name", "tool_name", "function"];
const ARGUMENTS = ["arguments", "parameters", "args"];

function fromObject(text: string, isCall: (members: ReadonlyMap<string, string>) => boolean): MarkedCall | undefined {
  const members = membersOf(text);
  const written = NAMES.map((key) => members?.get(key)).find((value) => value !== undefined);
  if (!members || written === undefined || !isCall(members)) return undefined;
  // OpenAI's own form.
  if (written.startsWith("{")) return fromObject(written, isCall);
  if (!written.startsWith('"')) return undefined;
  const name = JSON.parse(written) as string;
  const given = ARGUMENTS.map((key) => members.get(key)).find((value) => value !== undefined) ?? "{}";
  return withJson(name, given.startsWith('"') ? (JSON.parse(given) as string) : given);
}
