import fc from "fast-check";
import { expect, it } from "vitest";
import { urlsIn } from "../../src/api/passed-urls.ts";

/** The value at a path such as `a.b[0]`, whose names have neither dots nor brackets. */
function at(body: unknown, path: string): unknown {
  const keys = path.split(/[.[\]]+/).filter((key) => key !== "");
  return keys.reduce<unknown>((value, key) => (value as Record<string, unknown>)[key], body);
}

const name = fc.stringMatching(/^[a-z_]{1,8}$/);
const field = fc.constantFrom("url", "image_url", "audio_url", "video_url");
const { tree } = fc.letrec((tie) => ({
  tree: fc.oneof(
    { maxDepth: 6 },
    fc.string(),
    fc.integer(),
    fc.constant(null),
    fc.array(tie("tree"), { maxLength: 4 }),
    fc.dictionary(fc.oneof(name, field), tie("tree"), { maxKeys: 4 }),
  ),
}));

it("every address is found in any place, and named by its path", () => {
  const body = fc.dictionary(fc.oneof(name, field), tree, { minKeys: 1, maxKeys: 5 });
  fc.assert(
    fc.property(body, field, fc.array(name, { maxLength: 4 }), fc.boolean(), (around, last, way, isList) => {
      const url = "http://10.0.0.1/planted";
      const planted = [...way].reverse().reduce<unknown>((inner, key) => ({ [key]: [inner] }), {
        [last]: isList ? [url] : url,
      });
      const found = urlsIn({ ...around, planted });
      expect(found.filter((each) => each.url === url)).toHaveLength(1);
      for (const { param, url: each } of found) expect(at({ ...around, planted }, param)).toBe(each);
    }),
  );
});

it("values under other names are not found, and neither is data", () => {
  const text = "http://10.0.0.1/";
  const urls = { url: { type: "string", default: text }, image_url: ["data:image/png;base64,AA==", "DATA:,x"] };
  expect(urlsIn({ text, uri: text, messages: [{ content: text, ...urls }], url: 5, video_url: null })).toEqual([]);
});
