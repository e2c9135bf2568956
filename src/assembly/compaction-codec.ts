import { Buffer } from "node:buffer";
import { structureFault } from "@responses-edge/json-text";
import { z } from "zod";
import type { Config } from "../config/index.ts";
import type { CompactionCodec, CompactionContent, CompactionFault, Sealer } from "../contract/sealing.ts";
import { type InputItem, type Item, inputItem, isKept } from "../items/registry.ts";
import { list } from "../protocol/collections.ts";
import { createSealer } from "./sealer.ts";

/**
 * The content of compaction items: sealed where the operator has keys, else JSON that anybody can read, after `cmp1.`.
 * Whatever it comes from, it is checked as any other input is.
 */

const PLAIN = "cmp1.";

/** Items that one compaction may carry, as many as one request may have. */
const MAX_ITEMS = 50_000;

const items = list(inputItem, { max: MAX_ITEMS });

const content = z.object({ v: z.literal(1), before: items, summary: z.string(), after: items });

export function compactionCodec({ encryptionKeys }: Pick<Config, "encryptionKeys">, tenant: string): CompactionCodec {
  let made: Sealer | undefined;
  /** Made when a compaction is written or read: few turns have one. A conversation may change its model. */
  const sealer = () => {
    made ??= createSealer(encryptionKeys, tenant, "");
    return made;
  };
  return {
    write(written) {
      const payload = { v: 1, ...written };
      return sealer()?.seal("compaction", payload) ?? PLAIN + JSON.stringify(payload);
    },
    read(text, isStored) {
      if (text.startsWith(PLAIN)) {
        if (sealer() && !isStored) return unreadable("this server encrypts its own, and this one is not encrypted");
        return parsed(plainPayload(text.slice(PLAIN.length)));
      }
      const opened = sealer()?.open("compaction", text);
      if (!opened) return unreadable("this server has not made it, or has its keys no more");
      if (opened.reason === undefined) return parsed(opened.payload);
      return unreadable(
        opened.reason === "organization_mismatch"
          ? "it was made for another API key's organization, or has been changed"
          : "it is not whole, or this server has not made it",
      );
    },
  };
}

function plainPayload(json: string): unknown {
  if (structureFault(Buffer.from(json))) return undefined;
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function parsed(payload: unknown): CompactionContent | CompactionFault {
  const { data } = content.safeParse(payload);
  if (!data) return unreadable("it is not whole, or has been changed");
  const { before, summary, after } = data;
  if (!before.every(isItem) || !after.every(isItem)) return unreadable("it has been changed");
  return { before, summary, after };
}

/** True if an item says all itself: no reference, and no compaction in a compaction. */
function isItem(item: InputItem): item is Item {
  return isKept(item) && item.type !== "compaction";
}

function unreadable(why: string): CompactionFault {
  return { fault: `This compaction item cannot be read: ${why}.` };
}
