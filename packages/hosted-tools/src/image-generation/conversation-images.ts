import { type Item, partsOf } from "@responses-edge/responses-api/items/registry";

/** The images of a conversation, for a tool that edits images. */

/** The place of an image's bytes. */
export type ImageSource = { base64: string } | { file: string } | { url: string };

/** Images that belong together: those of one message, of one output, or of one call. */
export interface ImageGroup {
  /** The id of the call that made the image; undefined for given images. */
  call: string | undefined;
  images: readonly ImageSource[];
}

/** The images of items, oldest first. */
export function imagesIn(items: Iterable<{ type: string }>): ImageGroup[] {
  const groups: ImageGroup[] = [];
  for (const item of items as Iterable<Item>) {
    if (item.type === "image_generation_call") {
      const { id, result, file_id: file } = item;
      if (result) groups.push({ call: id, images: [{ base64: result }] });
      else if (file !== undefined) groups.push({ call: id, images: [{ file }] });
      continue;
    }
    const images: ImageSource[] = [];
    for (const part of partsOf(item).parts) {
      if (part.type !== "input_image") continue;
      const url = part.file_content ?? part.image_url;
      if (url !== undefined) images.push(/^data:/i.test(url) ? { base64: url.slice(url.indexOf(",") + 1) } : { url });
    }
    if (images.length > 0) groups.push({ call: undefined, images });
  }
  return groups;
}
