import { z } from "zod";
import { list } from "./collections.ts";
import { MAX_ID_LENGTH } from "./ids.ts";

/** What input items are made of: texts, ids, parts of content. */

/** OpenAI's limit on one text, in characters. */
const MAX_TEXT_LENGTH = 10_485_760;

export const text = z.string().max(MAX_TEXT_LENGTH);
export const itemId = z.string().min(1).max(MAX_ID_LENGTH).nullish();
export const callId = z.string().min(1).max(MAX_ID_LENGTH);
export const itemStatus = z.enum(["in_progress", "completed", "incomplete"]).nullish();

/** Raises the issue that `field` (a path below the value) is known and not served here. */
export function notServed(context: z.RefinementCtx, path: (string | number)[], what: string): void {
  context.addIssue({
    code: "custom",
    path,
    message: `${what} is not supported by this server.`,
    params: { code: "unsupported_parameter" },
  });
}

/** Where OpenAI is to end a cached prefix. vLLM caches every prefix: kept as it came, and of no effect. */
const promptCacheBreakpoint = z
  .object({ mode: z.literal("explicit"), ttl: z.enum(["30m", "12h"]).nullish() })
  .nullish();

export const inputText = z.object({
  type: z.literal("input_text"),
  text,
  prompt_cache_breakpoint: promptCacheBreakpoint,
});

const inputImage = z
  .object({
    type: z.literal("input_image"),
    image_url: z.string().nullish(),
    file_id: z.string().nullish(),
    detail: z.enum(["low", "high", "auto", "original"]).nullish(),
    prompt_cache_breakpoint: promptCacheBreakpoint,
  })
  .transform((part, context) => {
    if (part.file_id != null) notServed(context, ["file_id"], "An image by 'file_id'");
    else if (part.image_url == null || !/^(https?:\/\/|data:image\/)/i.test(part.image_url)) {
      context.addIssue({
        code: "custom",
        path: ["image_url"],
        message: "Expected an http(s) URL, or a base64 data URL with an image media type (data:image/…;base64,…).",
      });
    }
    return {
      type: part.type,
      image_url: part.image_url ?? "",
      detail: part.detail ?? "auto",
      ...withBreakpoint(part),
    };
  });

function withBreakpoint({
  prompt_cache_breakpoint,
}: {
  prompt_cache_breakpoint?: z.output<typeof promptCacheBreakpoint>;
}) {
  return prompt_cache_breakpoint == null ? {} : { prompt_cache_breakpoint };
}

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

const inputFile = z
  .object({
    type: z.literal("input_file"),
    file_data: z.string().nullish(),
    file_id: z.string().nullish(),
    file_url: z.string().nullish(),
    filename: z.string().nullish(),
    detail: z.enum(["auto", "low", "high"]).nullish(),
    prompt_cache_breakpoint: promptCacheBreakpoint,
  })
  .transform((part, context) => {
    if (part.file_id != null) notServed(context, ["file_id"], "A file by 'file_id'");
    else if (part.file_url != null) notServed(context, ["file_url"], "A file by 'file_url'");
    else if (part.file_data == null) {
      context.addIssue({
        code: "custom",
        path: ["file_data"],
        message: "Missing required parameter: 'file_data'.",
        params: { code: "missing_required_parameter" },
      });
    } else if (!TEXT_FILE.test(part.file_data.slice(0, MAX_MEDIA_TYPE_LENGTH))) {
      notServed(context, ["file_data"], "A file that is not text (data:text/…;base64,… or application/json)");
    } else if (!isBase64(part.file_data.slice(part.file_data.indexOf(",") + 1))) {
      context.addIssue({ code: "custom", path: ["file_data"], message: "Invalid base64 in 'file_data'." });
    }
    return {
      type: part.type,
      file_data: part.file_data ?? "",
      ...(part.filename != null && { filename: part.filename }),
      ...(part.detail != null && { detail: part.detail }),
      ...withBreakpoint(part),
    };
  });

const inputAudio = z.object({
  type: z.literal("input_audio"),
  input_audio: z.object({ data: z.string().min(1), format: z.enum(["mp3", "wav"]) }),
});

const inputVideo = z.object({ type: z.literal("input_video"), video_url: z.string().min(1) });

export const inputPart = z.discriminatedUnion("type", [inputText, inputImage, inputFile, inputAudio, inputVideo]);

export type InputPart = z.output<typeof inputPart>;

/** What a tool has answered: a text, or parts. */
export const toolOutput = z.union([text, list(inputPart)]);

/** Who has made a call: the model itself, or a program that it wrote at OpenAI. Kept as it came; no model is told. */
export const caller = z
  .discriminatedUnion("type", [
    z.object({ type: z.literal("direct") }),
    z.object({ type: z.literal("program"), caller_id: callId }),
  ])
  .nullish();

export function withCaller(from: z.output<typeof caller>) {
  return from == null ? {} : { caller: from };
}

export function withId(id: string | null | undefined): { id?: string } {
  return id == null ? {} : { id };
}
