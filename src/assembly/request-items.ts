import type { Config } from "../config.ts";
import type { InputItem } from "../items/registry.ts";
import { openCompaction, standingItems } from "../turn/compacted-past.ts";
import { compactionCodec } from "./compaction-codec.ts";
import { checkRequestMedia } from "./media-policy.ts";

/**
 * Checks what a request's own items bring in from elsewhere: images and videos, and compaction items with those in them.
 * `field` is where the items stand. Throws the 400 of a compaction item that cannot be read, and those of
 * `checkRequestMedia`.
 */
export async function checkRequestItems(
  items: readonly InputItem[],
  field: "input" | "items",
  { config, tenant }: { config: Config; tenant: string },
  signal: AbortSignal,
): Promise<void> {
  await checkRequestMedia(items, field, config, signal);
  const codec = compactionCodec(config, tenant);
  const newest = items.findLastIndex(({ type }) => type === "compaction");
  for (const [index, item] of items.entries()) {
    // Of a prompt only the newest is ever opened; what is added to a conversation may become that.
    if (item.type !== "compaction" || (field === "input" && index !== newest)) continue;
    const param = `${field}[${index}].encrypted_content`;
    const content = openCompaction(item, codec, { param, isStored: false });
    await checkRequestMedia(standingItems(content, "user"), field, config, signal, () => param);
  }
}
