import { type Item, partsOf } from "@responses-edge/responses-api/items/registry";

/** The moderated texts of items: messages, outputs of calls, and read files. Sounds and videos are not moderated. */
export function moderatedText(items: Iterable<{ type: string }>): string {
  const texts: string[] = [];
  for (const item of items as Iterable<Item>) {
    if ("output" in item && typeof item.output === "string") texts.push(item.output);
    for (const part of partsOf(item).parts as readonly { text?: string; file_content?: string }[]) {
      if (part.text !== undefined) texts.push(part.text);
      else if (part.file_content?.startsWith("data:") === false) texts.push(part.file_content);
    }
  }
  return texts.join("\n");
}

/** The images of items, by their URLs: each once. */
export function moderatedImages(items: Iterable<{ type: string }>): string[] {
  const urls = new Set<string>();
  for (const item of items as Iterable<Item>) {
    for (const part of partsOf(item).parts) {
      if (part.type !== "input_image") continue;
      const { image_url: url, file_content: content } = part as { image_url?: string; file_content?: string };
      const image = url ?? content;
      if (image !== undefined) urls.add(image);
    }
  }
  return [...urls];
}
