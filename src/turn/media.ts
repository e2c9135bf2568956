import { type Item, partsOf } from "../items/registry.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { isPublicUrl } from "../protocol/public-url.ts";

/**
 * The images and videos that vLLM fetches by itself, wherever it runs: only from public https addresses, and from what
 * the operator has listed. Data URLs are fetched from nowhere.
 */

/** A URL in an item, and the path of its field below the item. */
export interface MediaUrl {
  /** The item's place. */
  index: number;
  /** Such as `.content[0].image_url`. */
  path: string;
  url: string;
}

/** Every URL of `items` that vLLM would fetch. */
export function mediaUrls(items: readonly { type: string }[]): MediaUrl[] {
  return (items as readonly Item[]).flatMap((item, index) => {
    const { field, parts } = partsOf(item);
    return parts.flatMap((part, at) => {
      const key = part.type === "input_image" ? "image_url" : part.type === "input_video" ? "video_url" : undefined;
      const url = part.type === "input_image" ? part.image_url : part.type === "input_video" ? part.video_url : "";
      return key === undefined || /^data:/i.test(url) ? [] : [{ index, path: `.${field}[${at}].${key}`, url }];
    });
  });
}

/** Whether vLLM may be sent to a URL, as far as that can be seen of it. */
export function mayFetchMedia(url: string, isListed: (url: URL) => boolean): boolean {
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
export function refusedMedia(param: string) {
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
