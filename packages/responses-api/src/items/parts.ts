import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import { MAX_ID_LENGTH } from "../ids.ts";
import { refuse } from "../tool-fields.ts";
import { answered, given, normal, once, status } from "./shapes.ts";

/** The fields and content parts that items of several types have. */

/** OpenAI's limit on one text, in characters. */
export const MAX_TEXT_LENGTH = 10_485_760;

export const text = z.string().max(MAX_TEXT_LENGTH);
export const itemId = z.string().min(1).max(MAX_ID_LENGTH).nullish();
export const callId = z.string().min(1).max(MAX_ID_LENGTH);
export const itemStatus = z.enum(["in_progress", "completed", "incomplete"]).nullish();
/** A shell command, and its timeout. */
export const commandLine = z.string().max(1_048_576);
export const milliseconds = z.int().min(0).nullish();
/** The name of a client's tool, or of its namespace. */
export const calledName = z.string().min(1).max(128);

/** Raises the issue that `field` (a path below the value) is known and not supported. */
export function notServed(context: z.RefinementCtx, path: (string | number)[], what: string): void {
  refuse(context, path, `${what} is not supported by this server.`);
}

/** Raises the issue that a field is not there. `hint` says what else would do. */
export function missing(context: z.RefinementCtx, field: string, hint = ""): void {
  refuse(context, [field], `Missing required parameter: '${field}'.${hint}`, "missing_required_parameter");
}

/** The end of a prefix that OpenAI is to cache. vLLM caches every prefix: kept as it came, and of no effect. */
const promptCacheBreakpoint = z
  .object({ mode: z.literal("explicit"), ttl: z.enum(["30m", "12h"]).nullish() })
  .nullish();

export const inputText = given("input_text", { text, prompt_cache_breakpoint: promptCacheBreakpoint }).transform(
  normal("type text prompt_cache_breakpoint"),
);

/** Checks that only one of the fields names the source of a file or an image. */
function oneSource(part: object, fields: readonly string[], context: z.RefinementCtx): void {
  const given = fields.filter((field) => (part as Readonly<Record<string, unknown>>)[field] != null);
  const [first = "", second] = given;
  if (second === undefined) return;
  refuse(context, [second], `Mutually exclusive parameters: '${first}' and '${second}'.`, "invalid_value");
}

export const inputImage = given("input_image", {
  image_url: z.string().nullish(),
  file_id: z.string().nullish(),
  detail: z.enum(["low", "high", "auto", "original"]).nullish(),
  prompt_cache_breakpoint: promptCacheBreakpoint,
})
  .superRefine((part, context) => {
    oneSource(part, ["image_url", "file_id"], context);
    if (part.file_id == null && !/^(https?:\/\/|data:image\/)/i.test(part.image_url ?? "")) {
      const message = "Expected an http(s) URL, or a base64 data URL with an image media type (data:image/…;base64,…).";
      refuse(context, ["image_url"], message, "invalid_value");
    }
  })
  .transform(normal("type image_url file_id detail prompt_cache_breakpoint", { detail: "auto" }));

/** Only so much of a data URL is looked at for its type: a pattern keeps a state for every character that it tries. */
const MAX_MEDIA_TYPE_LENGTH = 256;

/** The media type and the base64 of `file_data`: a data URL, or base64 alone. Undefined for a data URL that is not base64. */
export function fileDataOf(fileData: string): { mimeType: string | undefined; base64: string } | undefined {
  if (!/^data:/i.test(fileData.slice(0, 5))) return { mimeType: undefined, base64: fileData };
  const header = fileData.slice(0, MAX_MEDIA_TYPE_LENGTH);
  const comma = header.indexOf(",");
  if (!/;base64$/i.test(header.slice(0, Math.max(0, comma)))) return undefined;
  return { mimeType: header.slice(5, comma - ";base64".length), base64: fileData.slice(comma + 1) };
}

function isBase64(text: string): boolean {
  try {
    atob(text);
    return true;
  } catch {
    return false;
  }
}

const inputFile = given("input_file", {
  file_data: z.string().nullish(),
  file_id: z.string().nullish(),
  file_url: z.string().nullish(),
  filename: z.string().nullish(),
  detail: z.enum(["auto", "low", "high"]).nullish(),
  prompt_cache_breakpoint: promptCacheBreakpoint,
})
  .superRefine((part, context) => {
    oneSource(part, ["file_data", "file_id", "file_url"], context);
    if (part.file_data != null) {
      const data = fileDataOf(part.file_data);
      if (!data) {
        refuse(context, ["file_data"], "Expected a base64 data URL (data:…;base64,…), or base64.", "invalid_value");
      } else if (!isBase64(data.base64)) {
        refuse(context, ["file_data"], "Invalid base64 in 'file_data'.", "invalid_value");
      }
    } else if (part.file_id == null && part.file_url == null) missing(context, "file_data");
  })
  .transform(normal("type file_data file_id file_url filename detail prompt_cache_breakpoint"));

const inputAudio = given("input_audio", {
  input_audio: z.object({ data: z.string().min(1), format: z.enum(["mp3", "wav"]) }),
});

const inputVideo = given("input_video", { video_url: z.string().min(1) });

export const inputPart = z.discriminatedUnion("type", [inputText, inputImage, inputFile, inputAudio, inputVideo]);

type SentPart = z.output<typeof inputPart>;

/**
 * The content of a part that was read when its request was accepted: the text of a file, or an image as a data URL. It
 * is stored with the part, so that later turns have the same prompt; clients do not see it.
 */
interface ReadPart {
  file_content?: string;
  /** Pictures of a file's pages, beside its text: what only a model that sees is given. */
  file_pictures?: FilePicture[];
}

/** A picture, at its place in the text of its file: it follows so many UTF-16 units. */
export interface FilePicture {
  after: number;
  /** A data URL. */
  url: string;
}

export type InputPart =
  | Exclude<SentPart, { type: "input_file" | "input_image" }>
  | (Extract<SentPart, { type: "input_file" | "input_image" }> & ReadPart);

/** Items as JSON text, without the content that only the model sees. */
export function withoutReadParts(json: string): string {
  if (!json.includes('"file_content":')) return json;
  return JSON.stringify(withoutContent(JSON.parse(json)));
}

/** The same for an item, or a list of them. */
export function withoutContent<Value>(value: Value): Value {
  if (Array.isArray(value)) return value.map(withoutContent) as Value;
  if (typeof value !== "object" || value === null) return value;
  const shown = { ...value } as Record<string, unknown>;
  if (shown.type === "input_file" || shown.type === "input_image") {
    delete shown.file_content;
    delete shown.file_pictures;
  }
  for (const field of ["content", "output"])
    if (Array.isArray(shown[field])) shown[field] = shown[field].map(withoutContent);
  return shown as Value;
}

/** The answer of a tool: a text, or parts. */
export const toolOutput = z.union([text, list(inputPart)]);

/** The caller of a call: the model itself, or a program that it wrote. Models see only the calls of their own. */
export const caller = z
  .discriminatedUnion("type", [z.object({ type: z.literal("direct") }), given("program", { caller_id: callId })])
  .nullish();

/** The parts of output items in answers. */
export const urlCitation = once(() =>
  given("url_citation", { url: z.string(), title: z.string(), start_index: z.int(), end_index: z.int() }),
);
/** `index` is the position in the text, in UTF-16 units, at which the model has cited the file. */
export const fileCitation = once(() =>
  given("file_citation", { file_id: z.string(), filename: z.string(), index: z.int() }),
);
/** Its indices count as those of `url_citation`. */
export const containerFileCitation = once(() =>
  given("container_file_citation", {
    container_id: z.string(),
    file_id: z.string(),
    filename: z.string(),
    start_index: z.int(),
    end_index: z.int(),
  }),
);
export const annotation = once(() =>
  z.discriminatedUnion("type", [urlCitation(), fileCitation(), containerFileCitation()]),
);
export const topLogprob = once(() => z.object({ token: z.string(), logprob: z.number(), bytes: z.array(z.int()) }));
export const logprob = once(() => topLogprob().extend({ top_logprobs: z.array(topLogprob()) }));
export const outputText = once(() =>
  given("output_text", {
    text: z.string(),
    annotations: z.array(annotation()),
    logprobs: z.array(logprob()).optional(),
  }),
);
export const refusal = once(() => given("refusal", { refusal: z.string() }));
export const reasoningText = once(() => given("reasoning_text", { text: z.string() }));
export const summaryText = once(() => given("summary_text", { text: z.string() }));

/** The client's call of a tool, in answers. */
export function answeredCall<const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) {
  return answered(type, { call_id: z.string(), ...shape, status: status(), caller: shownCaller() });
}

/** The output of a call as a turn's output may have it: only text. */
export const textOutput = once(() =>
  z.union([z.string(), z.array(z.object({ type: z.literal("input_text"), text: z.string() }))]),
);

/** The client's answer to a call, in the store and in answers. */
export function answeredOutput<const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) {
  return answered(type, { call_id: z.string(), status: z.literal("completed"), ...shape });
}

export const shownCaller = once(() => caller.unwrap().unwrap().optional());

/**
 * The fields of a hosted tool's call that only a program's call has, in requests and in answers. `result_index` is the place
 * of its result among those that the program got from hosted tools, from 0.
 */
export const programCall = { caller, call_id: callId.nullish(), result_index: z.int().min(0).nullish() };
export const shownProgramCall = once(() => ({
  caller: shownCaller(),
  call_id: z.string().optional(),
  result_index: z.int().optional(),
}));
