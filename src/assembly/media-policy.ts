import type { Config } from "../config.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type { InputItem } from "../protocol/items.ts";
import { guardOf } from "../tools/guard.ts";
import { mayCall } from "../tools/guarded-fetch.ts";
import { checkMedia, type MediaUrl, mediaUrls, refusedMedia } from "../turn/media.ts";

/** Look-ups that one request can cause, where names are looked up (DNS_OVER_HTTPS_URL). */
const MAX_HOSTS = 16;

const LOOKUP_TIMEOUT_MS = 5_000;

/**
 * Checks the images and videos that a request names in its own items; `field` is where the items stand. A URL is judged
 * by itself and, where names are looked up, by the addresses of its host; `nameOf` gives its field. Throws the 400 of one
 * that vLLM may not be sent to, and of more hosts than may be looked up.
 */
export async function checkRequestMedia(
  items: readonly InputItem[],
  field: "input" | "items",
  { isMediaListed, tools }: Config,
  signal: AbortSignal,
  nameOf: (media: MediaUrl) => string = ({ index, path }) => `${field}[${index}]${path}`,
): Promise<void> {
  checkMedia(items, isMediaListed, nameOf);
  if (tools.dohUrl === undefined) return;
  const byHost = new Map(mediaUrls(items).map((media) => [new URL(media.url).host, media]));
  if (byHost.size > MAX_HOSTS) {
    throw invalidRequest(field, `Images and videos of at most ${MAX_HOSTS} hosts can be given in one request.`);
  }
  const guard = { ...guardOf(tools), allow: isMediaListed };
  const within = AbortSignal.any([signal, AbortSignal.timeout(LOOKUP_TIMEOUT_MS)]);
  await Promise.all(
    [...byHost.values()].map(async (media) => {
      if (!(await mayCall(media.url, guard, within))) throw refusedMedia(nameOf(media));
    }),
  );
}
