import { type Item, partsOf } from "@responses-edge/responses-api/items/registry";

/** The moderated texts of items: messages, outputs of calls, and read files. Images and sounds are not moderated. */
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
