import { imageFormatOf, MAX_IMAGE_BYTES } from "@responses-edge/hosted-tools/image-generation";
import { ApiError } from "@responses-edge/responses-api/errors";
import { isImageInFile } from "@responses-edge/responses-api/items/image-generation";
import type { FileClient } from "../store/tenant/files/file-client.ts";
import type { Caller } from "./transport.ts";

/** Most bytes of all images in one answer. Further images have only their `file_id`. */
const MAX_SHOWN_BYTES = 24 * 1024 * 1024;

/**
 * Stored items as JSON text, one or a list, with the images of their files. An item whose file has expired or was
 * deleted has no image. Throws as buckets fail.
 */
export async function withImages({ files }: Pick<Caller, "files">, json: string): Promise<string> {
  if (!json.includes('"image_generation_call"')) return json;
  const items = JSON.parse(json) as { type: string } | { type: string }[];
  let left = MAX_SHOWN_BYTES;
  for (const item of [items].flat()) {
    if (!isImageInFile(item) || item.result) continue;
    const bytes = await imageIn(files, item.file_id, Math.min(left, MAX_IMAGE_BYTES));
    item.result = bytes?.toBase64() ?? "";
    left -= bytes?.length ?? 0;
  }
  return JSON.stringify(items);
}

async function imageIn(files: FileClient, id: string, maxBytes: number): Promise<Uint8Array | undefined> {
  try {
    const { record, body } = await files.content(id);
    if (record.bytes <= maxBytes) {
      const bytes = new Uint8Array(await new Response(body).arrayBuffer());
      return imageFormatOf(bytes) && bytes;
    }
    await body.cancel();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
  }
  return undefined;
}
