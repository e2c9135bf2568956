import type { Config } from "../config.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type { InputItem } from "../protocol/items.ts";
import { guardOf } from "../tools/guard.ts";
import { mayCall } from "../tools/guarded-fetch.ts";
import { checkMedia, mediaUrls, refusedMedia } from "../turn/media.ts";

/** Look-ups that one request can cause, where names are looked up (DNS_OVER_HTTPS_URL). */
const MAX_HOSTS = 16;

const LOOKUP_TIMEOUT_MS = 5_000;

/**
 * Checks the images and videos that a request names in its own items. `field` is where they stand. Throws the 400 of one
 * that vLLM may not be sent to, by what is seen of its URL and, where names are looked up, by what its name stands for.
 */
export async function checkGivenMedia(
  given: readonly InputItem[],
  field: "input" | "items",
  { isMediaListed, tools }: Config,
  signal: AbortSignal,
): Promise<void> {
  checkMedia(given, isMediaListed, ({ index, path }) => `${field}[${index}]${path}`);
  if (tools.dohUrl === undefined) return;
  const byHost = new Map(mediaUrls(given).map((media) => [new URL(media.url).host, media]));
  if (byHost.size > MAX_HOSTS) {
    throw invalidRequest(field, `Images and videos of at most ${MAX_HOSTS} hosts can be given in one request.`);
  }
  const guard = { ...guardOf(tools), allow: isMediaListed };
  const within = AbortSignal.any([signal, AbortSignal.timeout(LOOKUP_TIMEOUT_MS)]);
  await Promise.all(
    [...byHost.values()].map(async ({ url, index, path }) => {
      if (!(await mayCall(url, guard, within))) throw refusedMedia(`${field}[${index}]${path}`);
    }),
  );
}
