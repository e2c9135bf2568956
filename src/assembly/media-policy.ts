import { isPublicUrl, mayCall } from "@responses-edge/guarded-fetch";
import type { Config } from "../config/index.ts";
import { type InputItem, type Item, partsOf } from "../items/registry.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { guardOf } from "../tools/guard.ts";
import { openCompaction, standingItems } from "../turn/compacted-past.ts";
import { compactionCodec } from "./compaction-codec.ts";

/**
 * The images and videos that vLLM fetches by itself, wherever it runs: only from public https addresses, and from what
 * the operator has listed. Data URLs are fetched from nowhere.
 */

/** Look-ups that one request can cause, where names are looked up (DNS_OVER_HTTPS_URL). */
const MAX_HOSTS = 16;

const LOOKUP_TIMEOUT_MS = 5_000;

/** A URL in an item, and the path of its field below the item. */
interface MediaUrl {
  /** The item's place. */
  index: number;
  /** Such as `.content[0].image_url`. */
  path: string;
  url: string;
}

/** Every URL of `items` that vLLM would fetch. */
function mediaUrls(items: readonly { type: string }[]): MediaUrl[] {
  const urls: MediaUrl[] = [];
  for (const [index, item] of (items as readonly Item[]).entries()) {
    const { field, parts } = partsOf(item);
    for (const [at, part] of parts.entries()) {
      if (part.type !== "input_image" && part.type !== "input_video") continue;
      const [key, url] = part.type === "input_image" ? ["image_url", part.image_url] : ["video_url", part.video_url];
      if (!/^data:/i.test(url)) urls.push({ index, path: `.${field}[${at}].${key}`, url });
    }
  }
  return urls;
}

/** Tells whether vLLM may be sent to a URL, as far as that can be seen of it. */
function mayFetchMedia(url: string, isListed: (url: URL) => boolean): boolean {
  // Where URL parsers differ: Python's takes https://public.example\@127.0.0.1/ for a URL of 127.0.0.1.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
  if (/[\s\\\u0000-\u001f]/.test(url) || !/^https?:\/\//i.test(url) || !URL.canParse(url)) return false;
  return isPublicUrl(url) || isListed(new URL(url));
}

/**
 * Throws the 400 of the first URL of `items` that vLLM may not be sent to. `nameOf` gives the field that the client has
 * sent, from a place such as `2` and `.content[0].image_url`.
 */
export function checkMedia(
  items: readonly { type: string }[],
  isListed: (url: URL) => boolean,
  nameOf: (media: MediaUrl) => string,
): void {
  const refused = mediaUrls(items).find(({ url }) => !mayFetchMedia(url, isListed));
  if (refused) throw refusedMedia(nameOf(refused));
}

/** The 400 of a URL that vLLM may not be sent to. */
function refusedMedia(param: string) {
  return invalidRequest(
    param,
    "Expected a data URL, an https URL of a public address, or one that the operator has listed (MEDIA_URLS).",
    "invalid_url",
  );
}

/** Checks a turn's past and input, references resolved. Throws the 400 that names what the request has brought in. */
export function checkPromptMedia(
  { history, input }: { history: readonly Item[]; input: readonly Item[] },
  request: { conversation?: unknown },
  isListed: (url: URL) => boolean,
): void {
  checkMedia(history, isListed, () => (request.conversation == null ? "previous_response_id" : "conversation"));
  checkMedia(input, isListed, ({ index, path }) => `input[${index}]${path}`);
}

/**
 * Checks what a request's own items bring in from elsewhere: images and videos, and compaction items with those in them.
 * `field` is where the items stand. Throws the 400 of a compaction item that cannot be read, and those of
 * `checkMediaUrls`.
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
    // A prompt opens only the newest one, which any item of a conversation may become.
    if (item.type !== "compaction" || (field === "input" && index !== newest)) continue;
    const param = `${field}[${index}].encrypted_content`;
    const content = openCompaction(item, compactionCodec(config, tenant), { param, isStored: false });
    await checkRequestMedia(standingItems(content, "user"), field, config, signal, () => param);
  }
}

/**
 * Checks the images and videos that a request names in its own items; `field` is where the items stand, and `nameOf` gives
 * the field of each. Throws as `checkMediaUrls` does.
 */
async function checkRequestMedia(
  items: readonly InputItem[],
  field: "input" | "items",
  config: Config,
  signal: AbortSignal,
  nameOf: (media: MediaUrl) => string = ({ index, path }) => `${field}[${index}]${path}`,
): Promise<void> {
  const urls = mediaUrls(items).map((media) => ({ url: media.url, param: nameOf(media) }));
  await checkMediaUrls(urls, config, signal, field);
}

/**
 * Checks addresses wherever they stand; `param` is the path of each one's field. A URL is judged by itself and, where names
 * are looked up, by the addresses of its host. Throws the 400 of one that vLLM may not be sent to, and, of `field`, that of
 * more hosts than may be looked up.
 */
export async function checkMediaUrls(
  urls: readonly { url: string; param: string }[],
  { isMediaListed, tools }: Config,
  signal: AbortSignal,
  field: string | null = null,
): Promise<void> {
  const refused = urls.find(({ url }) => !mayFetchMedia(url, isMediaListed));
  if (refused) throw refusedMedia(refused.param);
  if (tools.dohUrl === undefined) return;
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
