import { type Item, partsOf } from "@responses-edge/responses-api/items/registry";

/** The images of a conversation, as a tool that changes images finds them. */

/** The place of an image's bytes. */
export type ImageSource = { base64: string } | { file: string } | { url: string };

/** Images that stand together: those of one message, or of one output, or the one that a call has made. */
export interface ImageGroup {
  /** The id of the call that has made the image; undefined of images that were given. */
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
