import { type ImageHeader, readImageHeader } from "./header.ts";
import type { Drawing } from "./request.ts";

/** An answer of an image server that is not the requested image. The message describes it for the model. */
export class ImageFault extends Error {
  override readonly name = "ImageFault";
}

/** An image of a server. */
export interface DrawnImage extends Pick<ImageHeader, "width" | "height"> {
  bytes: Uint8Array<ArrayBuffer>;
  /** The same as base64. */
  base64: string;
  /** The prompt that the server has rewritten; undefined if it has used the given one. */
  revisedPrompt: string | undefined;
}

/**
 * The image in an answer's JSON text. Throws ImageFault if it does not match `drawing`, or has more than `maxBytes`.
 */
export function drawnImage(
  text: string,
  { format, background, prompt }: Pick<Drawing, "format" | "background" | "prompt">,
  maxBytes = Number.POSITIVE_INFINITY,
): DrawnImage {
  const first = firstOf(text);
  const given = first?.b64_json;
  if (typeof given !== "string") throw new ImageFault("The image server's answer has no image.");
  if (given.length > Math.ceil(maxBytes / 3) * 4) throw new ImageFault("The image is too large.");
  const bytes = bytesOf(given);
  const header = bytes && readImageHeader(bytes);
  if (!header) throw new ImageFault("The image server's answer is not an image.");
  if (!header.isWhole) throw new ImageFault("The image server's image is cut off.");
  if (header.format !== format) throw new ImageFault(`The image server has made ${header.format}, not ${format}.`);
  if (background === "transparent" && !header.hasAlpha) {
    throw new ImageFault("The image server has made an image without transparency.");
  }
  const { width, height } = header;
  const revised = first?.revised_prompt;
  const revisedPrompt = typeof revised === "string" && revised !== "" && revised !== prompt ? revised : undefined;
  return { width, height, bytes, base64: bytes.toBase64(), revisedPrompt };
}

/** The first image of an answer, unchanged. */
function firstOf(text: string): { b64_json?: unknown; revised_prompt?: unknown } | undefined {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof answer !== "object" || answer === null || !("data" in answer) || !Array.isArray(answer.data)) {
    return undefined;
  }
  const [first] = answer.data as unknown[];
  return typeof first === "object" && first !== null ? first : undefined;
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.fromBase64(base64);
  } catch {
    return undefined;
  }
}
