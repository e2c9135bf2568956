import { type Item, partsOf } from "@responses-edge/responses-api/items/registry";

/** The texts of items that are judged: words of messages, outputs of calls, and files that were read. Images and sounds are not. */
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
