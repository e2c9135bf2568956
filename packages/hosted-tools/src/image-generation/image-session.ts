import { ApiError } from "@responses-edge/responses-api/errors";
import { type ImageGenerationTool, isImageSize } from "@responses-edge/responses-api/image-tool";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { ResponseOutputItem } from "openai/resources/responses/responses";
import { type DrawnImage, ImageFault } from "./answer.ts";
import { type ImageSource, imagesIn } from "./conversation-images.ts";
import type { Drawing } from "./request.ts";
import { toldOfImage } from "./tool-function.ts";

/** The image servers of a turn. */
export interface ImageMaker {
  /**
   * Draws an image, or edits the given images. Rejects with ApiError if model servers fail, with ImageFault for an
   * answer that is not the requested image, and with the signal's reason.
   */
  draw(drawing: Omit<Drawing, "model" | "steps">, signal: AbortSignal): Promise<DrawnImage>;
  /** The bytes of an image of the web, at most {@link MAX_IMAGE_BYTES}. Rejects with ApiError if it cannot be read. */
  fetch(url: string, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

/** The storage of images' bytes. Both methods reject with ApiError if it fails. */
export interface ImageFiles {
  read(id: string): Promise<{ body: AsyncIterable<Uint8Array> }>;
  /** Stores an image, and gives the id of its file. */
  keep(name: string, mimeType: string, bytes: Uint8Array): Promise<string>;
}

/** The largest drawn image, or image to edit. */
export const MAX_IMAGE_BYTES = 16 * 1024 * 1024;

/** The maximum of images that one call edits: OpenAI's limit. */
const MAX_CHANGED = 16;

/**
 * The maximum bytes of all images that a turn draws, or a call edits; and of drawn ones in a stored turn without a
 * file.
 */
const MAX_TURN_BYTES = 24 * 1024 * 1024;
const MAX_UNFILED_BYTES = 6 * 1024 * 1024;

/** The item of a call, with the file of its image. */
export type ImageItem = ResponseOutputItem.ImageGenerationCall & { file_id?: string };

/** The fields that the item of a drawn image shows. */
export type ShownImage = Omit<ImageItem, "id" | "type" | "status">;

interface Options {
  tool: Partial<ImageGenerationTool>;
  /** The items of the conversation, and the turn's output so far. */
  items: Iterable<{ type: string }>;
  maker: ImageMaker;
  /** Undefined without a storage. */
  files: ImageFiles | undefined;
  /** The turn is stored, and so are its images. */
  isKept: boolean;
}

/** The images that one turn draws. */
export class ImageSession {
  readonly #options: Options;
  /** The items of the drawn ones. */
  readonly #drawn: { type: string }[] = [];
  #bytes = 0;
  #unfiledBytes = 0;

  constructor(options: Options) {
    this.#options = options;
  }

  /**
   * Draws for a call with these arguments. `id` is that of the call's item. Throws ImageFault without an image, with a
   * message for the model, and any other error.
   */
  async draw(id: string, json: string, signal: AbortSignal): Promise<{ shown: ShownImage; output: string }> {
    const { tool, maker } = this.#options;
    const { prompt, action, image_ids: given, size: chosen } = parseArguments(json) ?? {};
    if (typeof prompt !== "string" || prompt.trim() === "") {
      throw new ImageFault("expected a JSON object with a 'prompt'.");
    }
    const { action: asked = "auto", background = "auto", output_format: format = "png", quality = "auto" } = tool;
    const ids = Array.isArray(given) ? given.map(String) : [];
    const isEdit = asked === "auto" ? action === "edit" || ids.length > 0 : asked === "edit";
    const isLeft = tool.size === undefined || tool.size === "auto";
    const size = isLeft && typeof chosen === "string" && isImageSize(chosen) ? chosen : tool.size;
    const images = isEdit ? await this.#imagesOf(ids, signal) : [];
    const drawing = {
      prompt,
      images,
      format,
      size: size === "auto" ? undefined : size,
      quality: quality === "auto" ? undefined : quality,
      background: background === "auto" ? undefined : background,
      compression: tool.output_compression,
    };
    const drawn = await maker.draw(drawing, signal).catch(toImageFault);
    const file = await this.#keep(`${id}.${format}`, `image/${format}`, drawn.bytes);
    const shown: ShownImage = {
      result: drawn.base64,
      action: isEdit ? "edit" : "generate",
      background,
      ...(file !== undefined && { file_id: file }),
      output_format: format,
      quality,
      revised_prompt: drawn.revisedPrompt ?? prompt,
      size: `${drawn.width}x${drawn.height}`,
    };
    this.#drawn.push(Object.assign({ type: "image_generation_call", id }, shown));
    return { shown, output: toldOfImage(id, shown) };
  }

  /** The images that calls of these ids have made; without any, the newest ones of the conversation. */
  async #imagesOf(ids: readonly string[], signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>[]> {
    const groups = imagesIn([...this.#options.items, ...this.#drawn]);
    const found = ids.map((id) => groups.find(({ call }) => call === id) ?? noSuchImage(id));
    const sources = (ids.length > 0 ? found : groups.slice(-1)).flatMap(({ images }) => images);
    if (sources.length === 0) throw new ImageFault("The conversation has no image to edit.");
    if (sources.length > MAX_CHANGED) throw new ImageFault(`At most ${MAX_CHANGED} images can be edited at once.`);
    const images: Uint8Array<ArrayBuffer>[] = [];
    let left = MAX_TURN_BYTES;
    for (const source of sources) {
      const bytes = await this.#read(source, signal).catch(toImageFault);
      left -= bytes.length;
      if (left < 0) throw new ImageFault("The images are too large to edit together.");
      images.push(bytes);
    }
    return images;
  }

  async #read(source: ImageSource, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    if ("url" in source) return this.#options.maker.fetch(source.url, signal);
    if ("base64" in source) {
      try {
        return Uint8Array.fromBase64(source.base64);
      } catch {
        throw new ImageFault("An image of the conversation is not valid base64.");
      }
    }
    const file = await this.#options.files?.read(source.file);
    if (!file) throw new ImageFault("An image of the conversation cannot be read.");
    return wholeOf(file.body);
  }

  /** Stores the image of a stored turn as a file. Gives the file's id; undefined if the item itself has the image. */
  async #keep(name: string, mimeType: string, bytes: Uint8Array): Promise<string | undefined> {
    const { files, isKept } = this.#options;
    this.#bytes += bytes.length;
    if (this.#bytes > MAX_TURN_BYTES) throw new ImageFault("This turn has drawn the maximum number of images.");
    if (!isKept) return undefined;
    try {
      if (files) return await files.keep(name, mimeType, bytes);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
    this.#unfiledBytes += bytes.length;
    if (this.#unfiledBytes <= MAX_UNFILED_BYTES) return undefined;
    throw new ImageFault("The image could not be stored as a file, and is too large to store without one.");
  }
}

function toImageFault(error: unknown): never {
  throw error instanceof ApiError ? new ImageFault(error.message) : error;
}

function noSuchImage(id: string): never {
  throw new ImageFault(`There is no image '${id.slice(0, 100)}' in the conversation.`);
}

/** The bytes of a body, at most {@link MAX_IMAGE_BYTES}. Throws ImageFault for more. */
async function wholeOf(body: AsyncIterable<Uint8Array>): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of body) {
    length += piece.length;
    if (length > MAX_IMAGE_BYTES) throw new ImageFault("An image of the conversation is too large.");
    pieces.push(piece.slice());
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
