import { isPublicUrl, mayCall } from "@responses-edge/outgoing-fetch/guarded";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { type InputItem, type Item, partsOf } from "@responses-edge/responses-api/items/registry";
import { openCompaction, standingItems } from "@responses-edge/turn/compacted-past";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import type { Config } from "../config/index.ts";

/**
 * The images and videos that vLLM itself fetches, wherever it runs: only from public https addresses and the operator's
 * list. Data URLs need no fetch.
 */

/** Most look-ups that one request can cause, where names are looked up (DNS_OVER_HTTPS_URL). */
const MAX_HOSTS = 16;

const LOOKUP_TIMEOUT_MS = 5_000;

/** The position of a URL: the index of its item, and the path of its field in the item, such as `.content[0].image_url`. */
interface MediaPlace {
  index: number;
  path: string;
}

/** A URL that vLLM would fetch. */
interface MediaUrl {
  url: string;
  /** The field that the client has sent. */
  param: string;
}

/** Every URL of `items` that vLLM would fetch. `nameOf` gives the field that the client has sent. */
function mediaUrls(items: readonly { type: string }[], nameOf: (place: MediaPlace) => string): MediaUrl[] {
  const urls: MediaUrl[] = [];
  for (const [index, item] of (items as readonly Item[]).entries()) {
    const { field, parts } = partsOf(item);
    for (const [at, part] of parts.entries()) {
      if (part.type !== "input_image" && part.type !== "input_video") continue;
      const [key, url] = part.type === "input_image" ? ["image_url", part.image_url] : ["video_url", part.video_url];
      if (url !== undefined && !/^data:/i.test(url))
        urls.push({ url, param: nameOf({ index, path: `.${field}[${at}].${key}` }) });
    }
  }
  return urls;
}

/** Tells whether vLLM may fetch a URL, as far as the URL itself shows. */
function mayFetchMedia(url: string, isListed: (url: URL) => boolean): boolean {
  // URL parsers differ here: Python's takes https://public.example\@127.0.0.1/ for a URL of 127.0.0.1.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression looks for them.
  if (/[\s\\\u0000-\u001f]/.test(url) || !/^https?:\/\//i.test(url) || !URL.canParse(url)) return false;
  return isPublicUrl(url) || isListed(new URL(url));
}

/** Throws the 400 of the first URL of `items` that vLLM may not fetch. `nameOf` gives the field that the client has sent. */
export function checkMedia(
  items: readonly { type: string }[],
  isListed: (url: URL) => boolean,
  nameOf: (place: MediaPlace) => string,
): void {
  const refused = mediaUrls(items, nameOf).find(({ url }) => !mayFetchMedia(url, isListed));
  if (refused) throw refusedMedia(refused.param);
}

/** The 400 of a URL that vLLM may not fetch. */
function refusedMedia(param: string) {
  return invalidRequest(
    param,
    "Expected a data URL, an https URL of a public address, or one that the operator allows (MEDIA_URLS).",
    "invalid_url",
  );
}

/** Checks a turn's history and input, with references resolved. Throws the 400 that names the field of the request. */
export function checkPromptMedia(
  { history, input }: { history: readonly Item[]; input: readonly Item[] },
  request: { conversation?: unknown },
  isListed: (url: URL) => boolean,
): void {
  checkMedia(history, isListed, () => (request.conversation == null ? "previous_response_id" : "conversation"));
  checkMedia(input, isListed, ({ index, path }) => `input[${index}]${path}`);
}

/**
 * Checks everything that a request's own items fetch: images and videos, also inside compaction items. `field` is the
 * field of the items. Throws the 400 of an unreadable compaction item, and those of `checkMediaUrls`.
 */
export async function checkRequestItems(
  items: readonly InputItem[],
  field: "input" | "items",
  { config, tenant }: { config: Config; tenant: string },
  signal: AbortSignal,
): Promise<void> {
  const ownUrls = mediaUrls(items, ({ index, path }) => `${field}[${index}]${path}`);
  if (ownUrls.length > 0) await checkMediaUrls(ownUrls, config, signal, field);
  const newest = items.findLastIndex(({ type }) => type === "compaction");
  for (const [index, item] of items.entries()) {
    // A prompt opens only its newest compaction. Any item of a conversation may become that one.
    if (item.type !== "compaction" || (field === "input" && index !== newest)) continue;
    const param = `${field}[${index}].encrypted_content`;
    const content = openCompaction(item, compactionCodec(config.encryptionKeys, tenant), { param, isStored: false });
    await checkMediaUrls(
      mediaUrls(standingItems(content, "user"), () => param),
      config,
      signal,
      field,
    );
  }
}

/**
 * Checks addresses of any field. A URL is judged by its text and, where names are looked up, by the addresses of its
 * host. Throws the 400 of one that vLLM may not fetch, and for `field` that of more hosts than may be looked up.
 */
export async function checkMediaUrls(
  urls: readonly MediaUrl[],
  { isMediaListed, tools }: Config,
  signal: AbortSignal,
  field: string | null = null,
): Promise<void> {
  const refused = urls.find(({ url }) => !mayFetchMedia(url, isMediaListed));
  if (refused) throw refusedMedia(refused.param);
  if (tools.dohUrl === undefined) return;
  const byHost = new Map(urls.map((media) => [new URL(media.url).host, media]));
  if (byHost.size > MAX_HOSTS) {
    throw invalidRequest(field, `A request may have images and videos of at most ${MAX_HOSTS} hosts.`);
  }
  const guard = { ...tools.guard, allow: isMediaListed };
  const within = AbortSignal.any([signal, AbortSignal.timeout(LOOKUP_TIMEOUT_MS)]);
  await Promise.all(
    [...byHost.values()].map(async ({ url, param }) => {
      if (!(await mayCall(url, guard, within))) throw refusedMedia(param);
    }),
  );
}
