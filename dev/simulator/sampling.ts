import type { Repetition } from "./engine.ts";
import { badField, badRequest, type Finding, invalidBody } from "./errors.ts";
import { booleanField, integerField, integersField, missing, numberField, objectField, stringField } from "./fields.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";
import { pythonFloat } from "./python-text.ts";

const MAX_STOP_STRINGS = 4;
const MAX_LOGPROBS = 20;

/** The common fields of chat and text completions. */
export type Sampling = {
  stream: boolean;
  includeUsage: boolean;
  continuousUsage: boolean;
  /** llama.cpp's counts in each chunk. */
  timings: boolean;
  stop: string[];
  stopTokenIds: number[];
  includeStop: boolean;
  repetition: Repetition | undefined;
  ignoreEos: boolean;
  cacheSalt: string;
  returnTokenIds: boolean;
  requestId: string | undefined;
  /** Tokens of each delta after the first. */
  streamInterval: number;
};

/** The required form of the content. */
export type AnswerFormat =
  | { kind: "text" }
  | { kind: "json_object" }
  | { kind: "json_schema"; schema: Json }
  | { kind: "choice"; choice: string }
  /** A grammar, or a regular expression, for the whole content. */
  | { kind: "grammar"; syntax: "grammar" | "regex"; source: string };

/** Reads and checks the fields that both routes share. Throws vLLM's 400s. */
export function parseSampling(body: JsonObject): Sampling {
  const stream = booleanField(body, "stream") ?? false;
  const options = objectField(body, "stream_options");
  if (options !== undefined && Object.keys(options).length > 0 && !stream) {
    throw badField("Stream options can only be defined when `stream=True`.", "stream_options");
  }
  checkRanges(body);
  const cacheSalt = stringField(body, "cache_salt");
  if (cacheSalt === "") throw badField("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt");
  return {
    stream,
    includeUsage: options?.include_usage === true,
    continuousUsage: options?.include_usage === true && options.continuous_usage_stats === true,
    timings: booleanField(body, "timings_per_token") ?? false,
    stop: parseStop(body.stop),
    stopTokenIds: integersField(body, "stop_token_ids"),
    includeStop: booleanField(body, "include_stop_str_in_output") ?? false,
    repetition: parseRepetition(objectField(body, "repetition_detection")),
    ignoreEos: booleanField(body, "ignore_eos") ?? false,
    cacheSalt: cacheSalt ?? "",
    returnTokenIds: booleanField(body, "return_token_ids") ?? false,
    requestId: stringField(body, "request_id"),
    streamInterval: parseStreamInterval(body),
  };
}

function parseRepetition(given: JsonObject | undefined): Repetition | undefined {
  if (given === undefined) return undefined;
  const maxSize = integerField(given, "max_pattern_size") ?? 0;
  const minCount = integerField(given, "min_count") ?? 0;
  if (maxSize > 0 && minCount < 2) {
    throw badRequest(
      "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish to detect repetitive patterns, set max_pattern_size to 0.",
    );
  }
  return maxSize > 0 ? { maxSize, minSize: integerField(given, "min_pattern_size") ?? 0, minCount } : undefined;
}

function parseStreamInterval(body: JsonObject): number {
  const interval = integerField(body, "stream_interval") ?? 1;
  if (interval >= 1) return interval;
  const msg = "Input should be greater than or equal to 1";
  throw invalidBody({ type: "greater_than_equal", loc: "body.stream_interval", msg, input: interval, ctx: { ge: 1 } });
}

/** The first of several fields that limit the tokens, with its name. Throws a 400 below 1. */
export function maxTokensField(
  body: JsonObject,
  names: readonly string[],
): { maxTokens: number | undefined; maxTokensName: string } {
  const name = names.find((entry) => (body[entry] ?? undefined) !== undefined) ?? "max_tokens";
  const value = integerField(body, name);
  if (value !== undefined && value < 1) throw tooFewTokens(value);
  return { maxTokens: value, maxTokensName: name };
}

/** vLLM's error for a value below 1 in any of these fields, and for a prompt after which no token fits. */
export function tooFewTokens(value: number): Error {
  return badField(`max_tokens must be at least 1, got ${value}.`, "max_tokens", String(value));
}

/** Throws vLLM's 400 for more alternatives to a token than it supports. */
export function checkLogprobs(top: number | undefined): void {
  if (top === undefined || top <= MAX_LOGPROBS) return;
  throw badField(
    `Requested sample logprobs of ${top}, which is greater than max allowed: ${MAX_LOGPROBS}`,
    "logprobs",
    String(top),
  );
}

/** Reads `response_format` and `structured_outputs`. Throws a 400 for what the simulator cannot generate. */
export function parseFormat(body: JsonObject): AnswerFormat {
  const structured = objectField(body, "structured_outputs");
  if (structured !== undefined) return parseStructured(structured);
  const format = objectField(body, "response_format");
  switch (format?.type) {
    case undefined:
      if (format !== undefined) throw missing("body.response_format.type", format);
      return { kind: "text" };
    case "text":
      return { kind: "text" };
    case "json_object":
      return { kind: "json_object" };
    case "json_schema": {
      if (!isObject(format?.json_schema)) {
        throw badField(
          "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
          "response_format",
        );
      }
      const { schema } = format.json_schema;
      return isObject(schema) ? { kind: "json_schema", schema } : { kind: "json_object" };
    }
    default:
      throw invalidBody({
        type: "literal_error",
        loc: "body.response_format.type",
        msg: "Input should be 'text', 'json_object' or 'json_schema'",
        input: format?.type,
        ctx: { expected: "'text', 'json_object' or 'json_schema'" },
      });
  }
}

function parseStructured(structured: JsonObject): AnswerFormat {
  const kinds = ["json", "regex", "choice", "grammar", "json_object", "structural_tag"];
  const given = kinds.filter((kind) => (structured[kind] ?? false) !== false);
  if (given.length > 1) {
    throw badRequest("You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').");
  }
  switch (given[0]) {
    case "json": {
      const { json } = structured;
      return { kind: "json_schema", schema: typeof json === "string" ? parseSchema(json) : (json ?? {}) };
    }
    case "json_object":
      return { kind: "json_object" };
    case "choice": {
      const choice = Array.isArray(structured.choice) ? structured.choice[0] : undefined;
      if (typeof choice !== "string") throw badRequest("structured_outputs: `choice` must be a list of strings");
      return { kind: "choice", choice };
    }
    case "grammar":
    case "regex": {
      const source = structured[given[0]];
      if (typeof source !== "string") {
        const loc = `body.structured_outputs.${given[0]}`;
        throw invalidBody({ type: "string_type", loc, msg: "Input should be a valid string", input: source });
      }
      return { kind: "grammar", syntax: given[0], source };
    }
    case undefined:
      if (structured.json_object === false) {
        throw badRequest(
          "structured_outputs.json_object must be True if set; omit structured_outputs to disable structured outputs",
        );
      }
      throw badRequest(
        "You must use one kind of structured outputs constraint but none are specified: {'json': None, 'regex': None, 'choice': None, 'grammar': None, 'json_object': None, 'disable_any_whitespace': False, 'disable_additional_properties': False, 'whitespace_pattern': None, 'structural_tag': None, '_backend': None, '_backend_was_auto': False}",
      );
    default:
      throw badField(`The simulator does not support structured_outputs.${given[0]}`, "structured_outputs");
  }
}

function parseSchema(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    throw badField("structured_outputs: `json` is not valid JSON", "structured_outputs");
  }
}

function parseStop(stop: Json | undefined): string[] {
  if (stop === undefined || stop === null) return [];
  if (typeof stop !== "string" && !Array.isArray(stop))
    throw badStop(stop, "list_type", "Input should be a valid list");
  const list = Array.isArray(stop) ? stop : [stop];
  const strings = list.filter((entry) => typeof entry === "string");
  if (strings.length < list.length) throw badStop(stop, "string_type", "Input should be a valid string");
  if (strings.length > MAX_STOP_STRINGS) {
    const msg = `List should have at most ${MAX_STOP_STRINGS} items after validation, not ${strings.length}`;
    const ctx = { field_type: "List", max_length: MAX_STOP_STRINGS, actual_length: strings.length };
    throw badStop(stop, "too_long", msg, ctx);
  }
  if (strings.includes("")) throw badRequest("stop cannot contain an empty string.");
  return strings;
}

/** pydantic has tried it as a string and as a list. */
function badStop(input: Json, type: string, msg: string, ctx?: JsonObject): Error {
  const loc = "body.stop";
  const second: Finding = { type, loc, msg, input };
  if (ctx !== undefined) second.ctx = ctx;
  return invalidBody({ type: "string_type", loc, msg: "Input should be a valid string", input }, second);
}

function checkRanges(body: JsonObject): void {
  const temperature = numberField(body, "temperature");
  if (temperature !== undefined && (temperature < 0 || temperature > 2)) {
    const range = temperature < 0 ? "non-negative" : "in [0, 2]";
    const given = pythonFloat(temperature);
    throw badField(`temperature must be ${range}, got ${given}.`, "temperature", given);
  }
  const topP = numberField(body, "top_p");
  if (topP !== undefined && (topP <= 0 || topP > 1)) {
    throw badField(`top_p must be in (0, 1], got ${pythonFloat(topP)}.`, "top_p", pythonFloat(topP));
  }
  const topK = integerField(body, "top_k");
  if (topK !== undefined && topK < -1) throw badRequest(`top_k must be 0 (disable), or at least 1, got ${topK}.`);
  for (const name of ["presence_penalty", "frequency_penalty"]) {
    const penalty = numberField(body, name);
    if (penalty !== undefined && Math.abs(penalty) > 2)
      throw badRequest(`${name} must be in [-2, 2], got ${pythonFloat(penalty)}.`);
  }
  const minP = numberField(body, "min_p");
  if (minP !== undefined && (minP < 0 || minP > 1)) {
    throw badRequest(`min_p must be in [0, 1], got ${pythonFloat(minP)}.`);
  }
  const repetition = numberField(body, "repetition_penalty");
  if (repetition !== undefined && repetition <= 0) {
    throw badRequest(`repetition_penalty must be greater than zero, got ${pythonFloat(repetition)}.`);
  }
  integerField(body, "seed");
}
