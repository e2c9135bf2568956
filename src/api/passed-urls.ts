import type { JsonObject } from "@responses-edge/responses-api/json";

/** Fields of vLLM's requests with an address that it fetches. */
const URL_FIELDS = new Set(["audio_url", "image_url", "url", "video_url"]);

/** Every address in a request, with the path of its field, except data URLs, which are not fetched. */
export function urlsIn(body: JsonObject): { param: string; url: string }[] {
  const urls: { param: string; url: string }[] = [];
  /** The path of the field that is being searched. */
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
