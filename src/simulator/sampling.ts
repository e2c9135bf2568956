import { badRequest } from "./errors.ts";
import { booleanField, integerField, listField, numberField, objectField, stringField } from "./fields.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";

const MAX_STOP_STRINGS = 4;

/** What chat and text completions have in common. */
export type Sampling = {
  stream: boolean;
  includeUsage: boolean;
  continuousUsage: boolean;
  stop: string[];
  stopTokenIds: number[];
  includeStop: boolean;
  ignoreEos: boolean;
  cacheSalt: string;
  returnTokenIds: boolean;
  requestId: string | undefined;
};

/** What the content must be. */
export type AnswerFormat =
  | { kind: "text" }
  | { kind: "json_object" }
  | { kind: "json_schema"; schema: Json }
  | { kind: "choice"; choice: string };

/** Reads and checks the fields that both routes share. Throws vLLM's 400s. */
export function parseSampling(body: JsonObject): Sampling {
  const stream = booleanField(body, "stream") ?? false;
  const options = objectField(body, "stream_options");
  if (options !== undefined && !stream) {
    throw badRequest("Stream options can only be defined when `stream=True`.", "stream_options");
  }
  checkRanges(body);
  const cacheSalt = stringField(body, "cache_salt");
  if (cacheSalt === "")
    throw badRequest("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt");
  return {
    stream,
    includeUsage: options?.include_usage === true,
    continuousUsage: options?.include_usage === true && options.continuous_usage_stats === true,
    stop: parseStop(body.stop),
    stopTokenIds: (listField(body, "stop_token_ids") ?? []).filter((id) => typeof id === "number"),
    includeStop: booleanField(body, "include_stop_str_in_output") ?? false,
    ignoreEos: booleanField(body, "ignore_eos") ?? false,
    cacheSalt: cacheSalt ?? "",
    returnTokenIds: booleanField(body, "return_token_ids") ?? false,
    requestId: stringField(body, "request_id"),
  };
}

/** `max_tokens` and its like. Throws a 400 below 1. */
export function maxTokensField(body: JsonObject, name: string): number | undefined {
  const value = integerField(body, name);
  if (value !== undefined && value < 1) throw badRequest(`max_tokens must be at least 1, got ${value}.`, name);
  return value;
}

/** Reads `response_format` and `structured_outputs`. Throws a 400 for what the simulator cannot generate. */
export function parseFormat(body: JsonObject): AnswerFormat {
  const structured = objectField(body, "structured_outputs");
  if (structured !== undefined) return parseStructured(structured);
  const format = objectField(body, "response_format");
  switch (format?.type) {
    case undefined:
      if (format !== undefined) throw badRequest("response_format: `type` is required", "response_format");
      return { kind: "text" };
    case "text":
      return { kind: "text" };
    case "json_object":
      return { kind: "json_object" };
    case "json_schema": {
      const schema = isObject(format?.json_schema) ? format.json_schema.schema : undefined;
      if (!isObject(schema)) {
        throw badRequest(
          "response_format: `json_schema` with a `schema` is required for type json_schema",
          "response_format",
        );
      }
      return { kind: "json_schema", schema };
    }
    default:
      throw badRequest(
        `response_format: the simulator does not support type ${JSON.stringify(format?.type)}`,
        "response_format",
      );
  }
}

function parseStructured(structured: JsonObject): AnswerFormat {
  const kinds = ["json", "regex", "choice", "grammar", "json_object", "structural_tag"];
  const given = kinds.filter((kind) => (structured[kind] ?? false) !== false);
  if (given.length > 1) {
    throw badRequest(
      `You can only use one kind of structured outputs constraint but multiple are specified: ${given.join(", ")}`,
    );
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
    case undefined:
      throw badRequest("You must use one kind of structured outputs constraint but none are specified");
    default:
      throw badRequest(`The simulator does not support structured_outputs.${given[0]}`, "structured_outputs");
  }
}

function parseSchema(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    throw badRequest("structured_outputs: `json` is not valid JSON", "structured_outputs");
  }
}

function parseStop(stop: Json | undefined): string[] {
  if (stop === undefined || stop === null) return [];
  const list = Array.isArray(stop) ? stop : [stop];
  const strings = list.filter((entry) => typeof entry === "string");
  if (strings.length < list.length) throw badRequest("stop: Input should be a valid string or list of strings", "stop");
  if (strings.includes("")) throw badRequest("stop cannot contain an empty string.", "stop");
  if (strings.length > MAX_STOP_STRINGS) {
    throw badRequest(`stop must contain at most ${MAX_STOP_STRINGS} strings, got ${strings.length}.`, "stop");
  }
  return strings;
}

function checkRanges(body: JsonObject): void {
  const temperature = numberField(body, "temperature");
  if (temperature !== undefined && temperature < 0) {
    throw badRequest(`temperature must be non-negative, got ${temperature}.`, "temperature");
  }
  const topP = numberField(body, "top_p");
  if (topP !== undefined && (topP <= 0 || topP > 1)) throw badRequest(`top_p must be in (0, 1], got ${topP}.`, "top_p");
  const topK = integerField(body, "top_k");
  if (topK !== undefined && topK < -1)
    throw badRequest(`top_k must be 0 (disable), or at least 1, got ${topK}.`, "top_k");
  for (const name of ["presence_penalty", "frequency_penalty"]) {
    const penalty = numberField(body, name);
    if (penalty !== undefined && Math.abs(penalty) > 2)
      throw badRequest(`${name} must be in [-2, 2], got ${penalty}.`, name);
  }
}
