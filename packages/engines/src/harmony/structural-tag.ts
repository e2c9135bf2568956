import { toEbnf } from "@responses-edge/grammar";
import {
  ANY_TEXT,
  answers,
  builtinCalls,
  customCalls,
  EXCLUDED,
  type Format,
  functionCalls,
  jsonOf,
  resolve,
  structuralTag,
} from "@responses-edge/harmony";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { isJsonObject } from "@responses-edge/responses-api/json";
import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import { formatPath } from "@responses-edge/responses-api/validation-errors";
import type { Prompt } from "@responses-edge/turn/contract/engine";
import { boundRules, MAX_BOUND_BY_DEFAULT, strictByDefault, toolsOf, withholdsTools } from "../offered-tools.ts";
import type { FunctionNames } from "./function-names.ts";

/**
 * Up to this number of functions, arguments exclude these, too: each schema then takes the model server a second or
 * two, once.
 */
const FEW = 8;

/** The parts of a prompt that determine its grammar. */
type BoundPrompt = Pick<Prompt, "request" | "pluginTools" | "freeInputs" | "onlyOffered">;

/**
 * The form to which the grammar of `structuredOutputs` constrains the answer; undefined without a grammar, or with the
 * client's own.
 */
export function boundTo(prompt: BoundPrompt): { answer: "json" | "other" } | undefined {
  if (!isBound(prompt) || prompt.request.structured_outputs?.structural_tag !== undefined) return undefined;
  return { answer: answerFormat(prompt.request)?.type === "json_schema" ? "json" : "other" };
}

function isBound(prompt: BoundPrompt): boolean {
  return bindsContent(prompt) || withholdsTools(prompt) || strictByDefault(prompt).size > 0;
}

/** Tells whether it constrains the content, and not only the recipient. */
function bindsContent(prompt: BoundPrompt): boolean {
  const { request, freeInputs } = prompt;
  if (request.structured_outputs?.structural_tag !== undefined || answerFormat(request)) return true;
  if (mustCall(request.tool_choice)) return true;
  const rules = boundRules(request);
  return toolsOf(prompt, "callable").functions.some(({ name, strict }) => strict || (!freeInputs && rules.has(name)));
}

/** The number of functions and namespaces of a prompt that the model may call. */
export function countCallable(prompt: BoundPrompt): number {
  const { functions, plugins } = toolsOf(prompt, "callable");
  return functions.length + Object.keys(plugins.namespaces).length;
}

/**
 * The value of `structured_outputs` for vLLM; undefined if the output is free. It is set if a function must be called
 * (`tool_choice`) or is strict, a custom tool has a grammar, the answer has a format, or the prompt has tools that may
 * not be called. Beyond `MAX_BOUND_BY_DEFAULT` functions, those that are not strict are bound to any JSON object.
 */
export function structuredOutputs(prompt: BoundPrompt, functions: FunctionNames): Record<string, unknown> | undefined {
  const { request } = prompt;
  const own = request.structured_outputs;
  if (own?.structural_tag !== undefined) return own;
  if (!isBound(prompt)) return undefined;
  const answer = answerFormat(request);
  const { functions: tools, plugins } = toolsOf(prompt, "callable");
  const namespaces = Object.values(plugins.namespaces);
  const choice = request.tool_choice;
  const isForced = mustCall(choice);
  const clients = ClientTools.of(request.tools);
  const named = clients.named(choice)?.flatName;
  const called = tools.filter((tool) => named === undefined || tool.name === named);
  const bindsArguments = bindsContent(prompt);
  const byDefault = strictByDefault(prompt);
  const calls = called.flatMap(({ name, parameters, strict }) => {
    const recipient = functions.recipient(name);
    if (clients.get(name)?.tool.type === "custom") return customCalls(recipient, inputOf(prompt, name));
    const isBound = strict || byDefault.has(name) || (bindsArguments && called.length <= MAX_BOUND_BY_DEFAULT);
    const schema = isBound ? parameters : undefined;
    const excludes = called.length <= FEW && bindsArguments;
    return functionCalls(recipient, jsonOf(schema ?? { type: "object" }, excludes));
  });
  const builtins = named === undefined ? namespaces.flatMap(builtinCalls) : [];
  const ends = [...calls, ...builtins, ...(isForced ? [] : answers(answer ?? ANY_TEXT))];
  return structuralTag(ends, !answer);
}

/** The form of the answer, from `text.format` or vLLM's `structured_outputs`; undefined for free text. */
function answerFormat({ text, structured_outputs: own }: CreateRequest): Format | undefined {
  const format = text?.format;
  if (format?.type === "json_object") return jsonOf({ type: "object" });
  if (format?.type === "json_schema") return jsonOf(format.schema);
  if (own == null) return undefined;
  if (own.json != null) return jsonOf(parsed(own.json));
  if (own.json_object === true) return jsonOf({ type: "object" });
  if (typeof own.regex === "string") return { type: "regex", pattern: own.regex };
  if (typeof own.grammar === "string") return { type: "grammar", grammar: own.grammar };
  if (Array.isArray(own.choice)) {
    return { type: "or", elements: own.choice.map((value) => ({ type: "const_string", value: String(value) })) };
  }
  return undefined;
}

/** vLLM takes a schema as an object or as its text. */
function parsed(schema: unknown): unknown {
  if (typeof schema !== "string") return schema;
  try {
    return JSON.parse(schema);
  } catch {
    return schema;
  }
}

/** The form of a custom tool's input. */
function inputOf({ request, freeInputs }: BoundPrompt, name: string): Format {
  const rules = freeInputs ? undefined : boundRules(request).get(name);
  return rules ? { type: "grammar", grammar: toEbnf(rules, { excludes: EXCLUDED }) } : ANY_TEXT;
}

/** A refusal of a grammar made by this server, naming the client's schema that was not understood. */
export function refusedSchema(error: unknown, prompt: Pick<Prompt, "request" | "pluginTools">): unknown {
  if (!(error instanceof ApiError) || error.status !== 400) return error;
  const isOfGrammar = error.param === "structured_outputs" || /structur|grammar|schema|xgrammar/i.test(error.message);
  if (!isOfGrammar) return error;
  return invalidRequest(
    schemaField(prompt),
    `The model server cannot follow this schema: ${error.message}`,
    "invalid_request",
  );
}

/** The field whose schema is enforced, as exactly as possible. */
function schemaField({ request }: Pick<Prompt, "request">): string {
  const isFormat = request.text?.format?.type === "json_schema";
  if (request.structured_outputs != null && !isFormat) return "structured_outputs";
  const tools = schemasOf(request).map(({ field }) => field);
  if (isFormat) return "text.format.schema";
  return tools.length === 1 && tools[0] !== undefined ? tools[0] : "tools";
}

/**
 * Throws the 400 of a schema that only refers to itself: xgrammar would follow it for ever, and vLLM would fail with
 * 500 in the middle of its answer.
 */
export function refuseEndlessSchemas(prompt: BoundPrompt): void {
  const { request } = prompt;
  const refuse = (field: string) => invalidRequest(field, `Invalid schema for '${field}': its $ref leads to itself.`);
  if (request.text?.format?.type === "json_schema" && isEndless(request.text.format.schema)) {
    throw refuse("text.format.schema");
  }
  if (!bindsContent(prompt)) return;
  const offered = new Set(
    ClientTools.of(request.tools)
      .offered(request.tool_choice)
      .map(({ tool }) => tool),
  );
  for (const { field, schema, tool } of schemasOf(request)) {
    if (offered.has(tool) && isEndless(schema)) throw refuse(field);
  }
}

/** The schemas of a request's functions, by their fields. */
function schemasOf({ tools }: CreateRequest): { field: string; schema: unknown; tool: ClientTool["tool"] }[] {
  return ClientTools.of(tools).listed.flatMap(({ tool, path }) =>
    tool.type === "function" && tool.parameters != null
      ? [{ field: formatPath(["tools", ...path.slice(0, -1), "parameters"]), schema: tool.parameters, tool }]
      : [],
  );
}

/** Tells whether a schema is a `$ref` to a `$ref` and so on that comes back to one of them. */
function isEndless(root: unknown): boolean {
  const seen = new Set<unknown>();
  for (let schema: unknown = root; isJsonObject(schema) && typeof schema.$ref === "string"; ) {
    if (seen.has(schema)) return true;
    seen.add(schema);
    schema = resolve(root, schema.$ref);
  }
  return false;
}
