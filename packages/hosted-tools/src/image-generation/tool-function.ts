import type { ImageGenerationTool } from "@responses-edge/responses-api/image-tool";

/** The name by which models call the tool. */
export const IMAGE_FUNCTION = "image_generation";

/** The sizes that a model may choose: those of every image model of OpenAI. */
const SIZES = ["1024x1024", "1536x1024", "1024x1536"];

/** The tool as a model sees it: without choices that the request has already made. */
export function imageFunction({ action, size }: Pick<ImageGenerationTool, "action" | "size">) {
  const kind = action ?? "auto";
  const properties: Record<string, object> = {
    prompt: {
      type: "string",
      description:
        "What the image shows, in all detail that matters: the one who draws knows nothing of the conversation.",
    },
  };
  if (kind === "auto") {
    properties.action = { type: "string", enum: ["generate", "edit"], description: "Whether to draw or to change." };
  }
  if (kind !== "generate") {
    properties.image_ids = {
      type: "array",
      items: { type: "string" },
      description:
        "To change images that were made before: their ids. Without ids the newest are changed: those of the user's last message with images, or the one made last.",
    };
  }
  if (size === undefined || size === "auto") {
    properties.size = { type: "string", enum: SIZES, description: "Width and height." };
  }
  return {
    name: IMAGE_FUNCTION,
    description: `${DESCRIPTIONS[kind]} The user sees the image at once.`,
    parameters: { type: "object", properties, required: ["prompt"], additionalProperties: false },
  };
}

const DESCRIPTIONS = {
  generate: "Draws an image.",
  edit: "Changes images of the conversation.",
  auto: "Draws an image, or changes images of the conversation.",
};

/** The words by which a model learns of a drawn image. It does not see it: few models could. */
export function toldOfImage(
  id: string,
  { size, output_format: format }: { size?: string | null; output_format?: string | null },
): string {
  const facts = [size, format].filter((fact) => fact != null).join(" ");
  const made = `The image ${id} was made${facts && ` (${facts})`}.`;
  return `${made} The user sees it: do not repeat it, and do not link to it.`;
}
