import { z } from "zod";
import { IMAGE_BACKGROUNDS, IMAGE_FORMATS, IMAGE_QUALITIES } from "../image-tool.ts";
import type { ItemType } from "./item-type.ts";
import { itemId, text } from "./parts.ts";
import { answered, COMPLETED, given, inItem, normal } from "./shapes.ts";

const STATUSES = ["in_progress", "generating", "completed", "failed"] as const;

/** OpenAI's servers give formats and qualities that are not served here, so its items may have them. */
const FOREIGN_FORMATS = [...IMAGE_FORMATS, "gif", "svg"] as const;
const ACTIONS = ["generate", "edit", "auto"] as const;

const error = z.object({
  type: z.string(),
  code: z.string().nullable(),
  message: z.string(),
  param: z.string().nullable(),
});

/** OpenAI's documentation refers to an earlier image by the id of its call alone. */
export function isImageReference(value: object): boolean {
  if (!("type" in value) || value.type !== "image_generation_call") return false;
  return "id" in value && Object.keys(value).length === 2;
}

/** Tells whether an item is an image with its bytes in a file. */
export function isImageInFile<Each extends { type: string }>(
  item: Each,
): item is Each & { type: "image_generation_call"; file_id: string; result: string | null } {
  return item.type === "image_generation_call" && "file_id" in item && typeof item.file_id === "string";
}

/** The stored form of an item: an image in a file has its bytes only there. */
export function withoutImage<Each extends { type: string }>(item: Each): Each {
  return isImageInFile(item) ? { ...item, result: "" } : item;
}

/** A drawn image. `file_id` names the file with its bytes: stored items have it instead of the bytes themselves. */
export const imageGenerationCall = {
  prefix: "ig",
  kind: "server_call",
  input: given("image_generation_call", {
    id: itemId,
    status: z.enum(["in_progress", "generating", "completed", "failed"]).nullish(),
    result: z.string().nullish(),
    action: z.enum(ACTIONS).nullish(),
    background: z.enum(IMAGE_BACKGROUNDS).nullish(),
    error: error.nullish(),
    file_id: z.string().max(128).nullish(),
    output_format: z.enum(FOREIGN_FORMATS).nullish(),
    quality: z.enum(IMAGE_QUALITIES).nullish(),
    revised_prompt: text.nullish(),
    size: z.string().max(32).nullish(),
  }).transform(
    normal("id type status result action background error file_id output_format quality revised_prompt size", {
      result: null,
      ...COMPLETED,
    }),
  ),
  output: () =>
    answered("image_generation_call", {
      status: z.enum(STATUSES),
      result: z
        .string()
        .nullable()
        .describe("The image as base64. Empty for a failed one, or one whose file was deleted."),
      action: z.enum(ACTIONS).nullish(),
      background: z.enum(IMAGE_BACKGROUNDS).nullish(),
      error: error.optional(),
      file_id: z.string().optional().describe("The file with the image's bytes, until it expires."),
      output_format: z.enum(FOREIGN_FORMATS).nullish(),
      quality: z.enum(IMAGE_QUALITIES).nullish(),
      revised_prompt: z.string().nullish(),
      size: z.string().nullish(),
    }),
  // `partial_image` is not among them: image servers give none.
  events: {
    "response.image_generation_call.in_progress": inItem,
    "response.image_generation_call.generating": inItem,
    "response.image_generation_call.completed": inItem,
  },
} as const satisfies ItemType;
