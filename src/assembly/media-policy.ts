import type { Config } from "../config/index.ts";
import type { InputItem } from "../items/registry.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { guardOf } from "../tools/guard.ts";
import { mayCall } from "../tools/guarded-fetch.ts";
import { openCompaction, standingItems } from "../turn/compacted-past.ts";
import { checkMedia, type MediaUrl, mayFetchMedia, mediaUrls, refusedMedia } from "../turn/media.ts";
import { compactionCodec } from "./compaction-codec.ts";

/** Look-ups that one request can cause, where names are looked up (DNS_OVER_HTTPS_URL). */
const MAX_HOSTS = 16;

const LOOKUP_TIMEOUT_MS = 5_000;

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
  const newest = items.findLastIndex(({ type }) => type === "compaction");
  for (const [index, item] of items.entries()) {
    // Of a prompt only the newest is ever opened; what is added to a conversation may become that.
    if (item.type !== "compaction" || (field === "input" && index !== newest)) continue;
    const param = `${field}[${index}].encrypted_content`;
    const content = openCompaction(item, compactionCodec(config, tenant), { param, isStored: false });
    await checkRequestMedia(standingItems(content, "user"), field, config, signal, () => param);
  }
}

/**
 * Checks the images and videos that a request names in its own items; `field` is where the items stand. A URL is judged
 * by itself and, where names are looked up, by the addresses of its host; `nameOf` gives its field. Throws the 400 of one
 * that vLLM may not be sent to, and of more hosts than may be looked up.
 */
async function checkRequestMedia(
  items: readonly InputItem[],
  field: "input" | "items",
  { isMediaListed, tools }: Config,
  signal: AbortSignal,
  nameOf: (media: MediaUrl) => string = ({ index, path }) => `${field}[${index}]${path}`,
): Promise<void> {
  checkMedia(items, isMediaListed, nameOf);
  if (tools.dohUrl === undefined) return;
  const urls = mediaUrls(items).map((media) => ({ url: media.url, param: nameOf(media) }));
  await lookUpHosts(urls, field, { isMediaListed, tools }, signal);
}

/** The same of addresses wherever they stand; `param` is the path of each one's field. */
export async function checkMediaUrls(
  urls: readonly { url: string; param: string }[],
  { isMediaListed, tools }: Config,
  signal: AbortSignal,
): Promise<void> {
  const refused = urls.find(({ url }) => !mayFetchMedia(url, isMediaListed));
  if (refused) throw refusedMedia(refused.param);
  if (tools.dohUrl !== undefined) await lookUpHosts(urls, null, { isMediaListed, tools }, signal);
}

async function lookUpHosts(
  urls: readonly { url: string; param: string }[],
  field: string | null,
  { isMediaListed, tools }: Pick<Config, "isMediaListed" | "tools">,
  signal: AbortSignal,
): Promise<void> {
  const byHost = new Map(urls.map((media) => [new URL(media.url).host, media]));
  if (byHost.size > MAX_HOSTS) {
    throw invalidRequest(field, `Images and videos of at most ${MAX_HOSTS} hosts can be given in one request.`);
  }
  const guard = { ...guardOf(tools), allow: isMediaListed };
  const within = AbortSignal.any([signal, AbortSignal.timeout(LOOKUP_TIMEOUT_MS)]);
  await Promise.all(
    [...byHost.values()].map(async ({ url, param }) => {
      if (!(await mayCall(url, guard, within))) throw refusedMedia(param);
    }),
  );
}
