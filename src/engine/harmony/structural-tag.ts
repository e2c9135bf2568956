import type { CreateRequest } from "../../protocol/create-request.ts";
import { mustCall } from "../../protocol/tools.ts";
import type { Prompt, ToolNamespace } from "../engine.ts";
import { offeredTools } from "../offered-tools.ts";
import type { FunctionNames } from "./function-names.ts";

/**
 * A grammar over headers and bodies, in xgrammar's structural tags, for requests that want more than free text: vLLM
 * does the same on its Harmony path (#45560), and measured far fewer malformed calls.
 */

type Format =
  | { type: "any_text" }
  | { type: "const_string"; value: string }
  | { type: "json_schema"; json_schema: unknown }
  | { type: "regex"; pattern: string }
  | { type: "grammar"; grammar: string }
  | { type: "sequence" | "or"; elements: Format[] }
  | { type: "tag"; begin: string; content: Format; end: string | string[] };

/** A body ends with `<|end|>`, or where the model stops: xgrammar allows no stop token under constraints. */
const BODY_END = ["<|end|>", ""];

/**
 * The value of `structured_outputs` for vLLM, or undefined where the output is free: a function must be called
 * (`tool_choice`), or is strict, or the answer has a format.
 */
export function structuredOutputs(
  prompt: Pick<Prompt, "request" | "serverTools">,
  functions: FunctionNames,
): Record<string, unknown> | undefined {
  const { request } = prompt;
  const own = request.structured_outputs;
  if (own?.structural_tag !== undefined) return own;
  const answer = answerFormat(request);
  const tools = offeredTools(prompt);
  const namespaces = Object.values(prompt.serverTools?.namespaces ?? {});
  const choice = request.tool_choice;
  const isForced = tools.length + namespaces.length > 0 && mustCall(choice);
  if (!isForced && !answer && !tools.some((tool) => tool.strict)) return undefined;
  const named = typeof choice === "object" && choice?.type === "function" ? choice.name : undefined;
  const called = tools.filter((tool) => named === undefined || tool.name === named);
  const calls = called.flatMap(({ name, parameters }) => {
    const schema: Format = { type: "json_schema", json_schema: parameters ?? { type: "object" } };
    return callHeaders(functions.shown(name)).map((begin) => tag(begin, schema));
  });
  const builtins = named === undefined ? namespaces.flatMap(builtinCalls) : [];
  const answers = isForced ? [] : finalHeaders().map((begin) => tag(begin, answer ?? { type: "any_text" }));
  const ends: Format = { type: "or", elements: [...calls, ...builtins, ...answers] };
  const structure: Format = { type: "or", elements: preludes(!answer).map((prelude) => sequence([...prelude, ends])) };
  return { structural_tag: JSON.stringify({ type: "structural_tag", format: structure }) };
}

/** Calls of built-in tools, which the model makes in its thoughts: their bodies are left to it. */
function builtinCalls({ name, tools }: ToolNamespace): Format[] {
  const recipients = tools.length === 0 ? [name] : tools.map((tool) => `${name}.${tool.name}`);
  return recipients.flatMap((recipient) =>
    ["analysis", "commentary"].flatMap((channel) =>
      [" code", " <|constrain|>json", ""].map((type) =>
        tag(`<|channel|>${channel} to=${recipient}${type}<|message|>`, { type: "any_text" }),
      ),
    ),
  );
}

/** What the answer must be, from `text.format` or vLLM's `structured_outputs`; undefined for free text. */
function answerFormat({ text, structured_outputs: own }: CreateRequest): Format | undefined {
  const format = text?.format;
  if (format?.type === "json_object") return { type: "json_schema", json_schema: { type: "object" } };
  if (format?.type === "json_schema") return { type: "json_schema", json_schema: format.schema };
  if (own == null) return undefined;
  if (own.json != null) return { type: "json_schema", json_schema: parsed(own.json) };
  if (own.json_object === true) return { type: "json_schema", json_schema: { type: "object" } };
  if (typeof own.regex === "string") return { type: "regex", pattern: own.regex };
  if (typeof own.grammar === "string") return { type: "grammar", grammar: own.grammar };
  if (Array.isArray(own.choice)) {
    return { type: "or", elements: own.choice.map((value) => ({ type: "const_string", value: String(value) })) };
  }
  return undefined;
}

/** vLLM takes a schema as an object and as its text. */
function parsed(schema: unknown): unknown {
  if (typeof schema !== "string") return schema;
  try {
    return JSON.parse(schema);
  } catch {
    return schema;
  }
}

/** What may come first: thoughts, and a preamble (none before an answer in a format). */
function preludes(withPreamble: boolean): Format[][] {
  const thoughts = message("<|channel|>analysis<|message|>");
  const preamble = message("<|channel|>commentary<|message|>");
  const choices = [[], [thoughts]];
  return withPreamble ? [...choices, [preamble], [thoughts, preamble]] : choices;
}

/** A message of free text, and the beginning of the next. */
function message(begin: string): Format {
  const text: Format = { type: "tag", begin, content: { type: "any_text" }, end: "<|end|>" };
  return sequence([text, { type: "const_string", value: "<|start|>assistant" }]);
}

function sequence(elements: Format[]): Format {
  return { type: "sequence", elements };
}

function tag(begin: string, content: Format): Format {
  return { type: "tag", begin, content, end: BODY_END };
}

/** The headers with which gpt-oss calls a function: the recipient in the channel's section, or in the role's. */
function callHeaders(name: string): string[] {
  const recipient = ` to=functions.${name}`;
  return ["json", "<|constrain|>json"].flatMap((type) => [
    `<|channel|>commentary${recipient} ${type}<|message|>`,
    `<|channel|>analysis${recipient} ${type}<|message|>`,
    `${recipient}<|channel|>commentary ${type}<|message|>`,
    `${recipient}<|channel|>analysis ${type}<|message|>`,
  ]);
}

function finalHeaders(): string[] {
  return ["<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"];
}
