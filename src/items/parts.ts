import { z } from "zod";
import { list } from "../protocol/collections.ts";
import { MAX_ID_LENGTH } from "../protocol/ids.ts";
import { refuse } from "../protocol/tool-fields.ts";
import { answered, given, normal, once, status } from "./shapes.ts";

/** The fields and content parts that items of several types have. */

/** OpenAI's limit on one text, in characters. */
const MAX_TEXT_LENGTH = 10_485_760;

export const text = z.string().max(MAX_TEXT_LENGTH);
export const itemId = z.string().min(1).max(MAX_ID_LENGTH).nullish();
export const callId = z.string().min(1).max(MAX_ID_LENGTH);
export const itemStatus = z.enum(["in_progress", "completed", "incomplete"]).nullish();
/** A line that a shell is to run, and how long it may take. */
export const commandLine = z.string().max(1_048_576);
export const milliseconds = z.int().min(0).nullish();
/** The name of a tool of the client's, or of its namespace. */
export const calledName = z.string().min(1).max(128);

/** Raises the issue that `field` (a path below the value) is known and not served here. */
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

export const inputText = given("input_text", { text, prompt_cache_breakpoint: promptCacheBreakpoint });

const inputImage = given("input_image", {
  image_url: z.string().nullish(),
  file_id: z.string().nullish(),
  detail: z.enum(["low", "high", "auto", "original"]).nullish(),
  prompt_cache_breakpoint: promptCacheBreakpoint,
})
  .superRefine((part, context) => {
    if (part.file_id != null) notServed(context, ["file_id"], "An image by 'file_id'");
    else if (part.image_url == null || !/^(https?:\/\/|data:image\/)/i.test(part.image_url)) {
      const message = "Expected an http(s) URL, or a base64 data URL with an image media type (data:image/…;base64,…).";
      refuse(context, ["image_url"], message, "invalid_value");
    }
  })
  .transform(normal("type image_url detail prompt_cache_breakpoint", { image_url: "", detail: "auto" }));

/** Media types of a file that can be given to a chat model as text. */
const TEXT_FILE =
  /^data:(text\/[\w.+-]+|application\/(json|xml|yaml|x-yaml|javascript|x-ndjson))(;charset=[\w-]+)?;base64,/i;

/** Only so much of a data URL is looked at for its type: a pattern keeps a state for every character that it tries. */
const MAX_MEDIA_TYPE_LENGTH = 256;

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
    if (part.file_id != null) notServed(context, ["file_id"], "A file by 'file_id'");
    else if (part.file_url != null) notServed(context, ["file_url"], "A file by 'file_url'");
    else if (part.file_data == null) {
      missing(context, "file_data");
    } else if (!TEXT_FILE.test(part.file_data.slice(0, MAX_MEDIA_TYPE_LENGTH))) {
      notServed(context, ["file_data"], "A file that is not text (data:text/…;base64,… or application/json)");
    } else if (!isBase64(part.file_data.slice(part.file_data.indexOf(",") + 1))) {
      refuse(context, ["file_data"], "Invalid base64 in 'file_data'.", "invalid_value");
    }
  })
  .transform(normal("type file_data filename detail prompt_cache_breakpoint", { file_data: "" }));

const inputAudio = given("input_audio", {
  input_audio: z.object({ data: z.string().min(1), format: z.enum(["mp3", "wav"]) }),
});

const inputVideo = given("input_video", { video_url: z.string().min(1) });

export const inputPart = z.discriminatedUnion("type", [inputText, inputImage, inputFile, inputAudio, inputVideo]);

export type InputPart = z.output<typeof inputPart>;

/** The answer of a tool: a text, or parts. */
export const toolOutput = z.union([text, list(inputPart)]);

/** The maker of a call: the model itself, or a program that it wrote at OpenAI. Kept as it came; no model is told. */
export const caller = z
  .discriminatedUnion("type", [z.object({ type: z.literal("direct") }), given("program", { caller_id: callId })])
  .nullish();

/** The parts that a turn puts out, as they are answered. */
export const urlCitation = once(() =>
  given("url_citation", { url: z.string(), title: z.string(), start_index: z.int(), end_index: z.int() }),
);
/** `index` is the place in the text, in UTF-16 units, at which the model has cited the file. */
export const fileCitation = once(() =>
  given("file_citation", { file_id: z.string(), filename: z.string(), index: z.int() }),
);
export const annotation = once(() => z.discriminatedUnion("type", [urlCitation(), fileCitation()]));
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

/** The client's call of a tool, as it is answered. */
export function answeredCall<const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) {
  return answered(type, { call_id: z.string(), ...shape, status: status(), caller: shownCaller() });
}

/** The client's answer to a call, as it is kept and answered. */
export function answeredOutput<const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) {
  return answered(type, { call_id: z.string(), status: z.literal("completed"), ...shape });
}

export const shownCaller = once(() => caller.unwrap().unwrap().optional());
