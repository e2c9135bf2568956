import type { JsonObject } from "../protocol/json.ts";

/** The addresses that vLLM would fetch for a request to one of its own endpoints. */

/** Fields in which vLLM's requests hold the address of something that it fetches. */
const URL_FIELDS = new Set(["audio_url", "image_url", "url", "video_url"]);

/** Every address in a request, with the path of its field. Data URLs are fetched from nowhere. */
export function urlsIn(body: JsonObject): { param: string; url: string }[] {
  const urls: { param: string; url: string }[] = [];
  /** The way to where the search is. */
  const keys: (string | number)[] = [];
  const visit = (value: unknown, isUrl: boolean): void => {
    if (typeof value === "string") {
      if (isUrl && !/^data:/i.test(value)) urls.push({ param: pathOf(keys), url: value });
      return;
    }
    if (typeof value !== "object" || value === null) return;
    const isList = Array.isArray(value);
    for (const key in value) {
      keys.push(isList ? Number(key) : key);
      visit((value as Record<string, unknown>)[key], isList ? isUrl : URL_FIELDS.has(key));
      keys.pop();
    }
  };
  visit(body, false);
  return urls;
}

function pathOf(keys: readonly (string | number)[]): string {
  return keys.map((key, index) => (typeof key === "number" ? `[${key}]` : index === 0 ? key : `.${key}`)).join("");
}
