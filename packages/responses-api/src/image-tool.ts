import { z } from "zod";
import { refuse } from "./tool-fields.ts";

/** The request's tool `image_generation` (openai 7.59 `Tool.ImageGeneration`), and the rules of its fields. */

export const IMAGE_FORMATS = ["png", "webp", "jpeg"] as const;
export const IMAGE_BACKGROUNDS = ["transparent", "opaque", "auto"] as const;
export const IMAGE_QUALITIES = ["low", "medium", "high", "xhigh", "max", "auto"] as const;

/**
 * OpenAI's bounds of a size: both edges are multiples of this, the longer one has a maximum, and at most three times
 * the other.
 */
const EDGE_MULTIPLE = 16;
const MAX_EDGE = 3840;
const MAX_PIXELS = 3840 * 2160;
const MAX_RATIO = 3;

/** Fields that no supported image server implements. */
const UNSERVED = ["complexity", "frame_count", "frame_duration_ms", "input_image_mask", "svg"] as const;

/** Tells whether OpenAI's image models accept a size: `WIDTHxHEIGHT`, or `auto`. */
export function isImageSize(size: string): boolean {
  if (size === "auto") return true;
  const [, width = 0, height = 0] = (/^(\d{2,4})x(\d{2,4})$/.exec(size) ?? []).map(Number);
  if (width === 0 || height === 0 || width % EDGE_MULTIPLE > 0 || height % EDGE_MULTIPLE > 0) return false;
  const [long, short] = width > height ? [width, height] : [height, width];
  return long <= MAX_EDGE && long <= MAX_RATIO * short && width * height <= MAX_PIXELS;
}

const SIZE_RULE =
  "Expected 'auto' or WIDTHxHEIGHT: both divisible by 16, at most 3840x2160 pixels, and no edge more than three times the other.";

export const imageGenerationTool = z
  .object({
    type: z.literal("image_generation"),
    action: z.enum(["generate", "edit", "auto"]).nullish(),
    background: z.enum(IMAGE_BACKGROUNDS).nullish(),
    input_fidelity: z.enum(["high", "low"]).nullish(),
    model: z.string().min(1).max(1_024).nullish(),
    // No image is moderated, so there is nothing to relax.
    moderation: z.enum(["auto", "low"]).nullish(),
    output_compression: z.int().min(0).max(100).nullish(),
    output_format: z.enum([...IMAGE_FORMATS, "gif", "svg"]).nullish(),
    // OpenAI may return fewer images than requested. This server returns none.
    partial_images: z.int().min(0).max(3).nullish(),
    quality: z.enum(IMAGE_QUALITIES).nullish(),
    size: z.string().max(32, { abort: true }).refine(isImageSize, SIZE_RULE).nullish(),
    complexity: z.unknown().optional(),
    frame_count: z.unknown().optional(),
    frame_duration_ms: z.unknown().optional(),
    input_image_mask: z.unknown().optional(),
    svg: z.unknown().optional(),
  })
  .transform((tool, context) => {
    for (const field of UNSERVED) {
      if (tool[field] != null) refuse(context, [field], `'${field}' is not supported by this server.`);
    }
    const { type, output_format: format, background, input_fidelity, output_compression: compression } = tool;
    if (input_fidelity === "high") {
      refuse(context, ["input_fidelity"], "'high' is not supported by this server: image servers do not know it.");
    }
    if (format === "gif" || format === "svg") {
      refuse(context, ["output_format"], `'${format}' is not supported by this server: 'png', 'webp' and 'jpeg' are.`);
    }
    if (background === "transparent" && format === "jpeg") {
      refuse(context, ["background"], "A JPEG image has no transparency: set 'output_format' to 'png' or 'webp'.");
    }
    if (compression != null && compression !== 100 && (format == null || format === "png")) {
      refuse(context, ["output_compression"], "A PNG image has no compression level: expected 100.");
    }
    const { action, model, moderation, partial_images, quality, size } = tool;
    return {
      type,
      ...(action != null && { action }),
      ...(background != null && { background }),
      ...(input_fidelity === "low" && { input_fidelity }),
      ...(model != null && { model }),
      ...(moderation != null && { moderation }),
      ...(compression != null && { output_compression: compression }),
      ...(format != null && format !== "gif" && format !== "svg" && { output_format: format }),
      ...(partial_images != null && { partial_images }),
      ...(quality != null && { quality }),
      ...(size != null && { size }),
    };
  });

export type ImageGenerationTool = z.output<typeof imageGenerationTool>;
