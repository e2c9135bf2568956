import { WIDTH, wrapLines } from "@responses-edge/file-text/page-text";
import { BROWSER_FUNCTIONS, BROWSER_NAMESPACE } from "@responses-edge/hosted-tools/browser/definition";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CONTAINER } from "../../src/tools/container/plugin.ts";
import { PYTHON } from "../../src/tools/python/plugin.ts";
import { charactersTouched } from "../work.ts";

/** The result of Python's `textwrap.wrap(…, 80, replace_whitespace=False, drop_whitespace=False)`. */
describe("lines of 80 columns", () => {
  it.each<[what: string, text: string, lines: string[]]>([
    ["short ones stay", "a\n\nb ", ["a", "", "b "]],
    ["long ones break before a word", `${"x".repeat(79)} y z`, [`${"x".repeat(79)} `, "y z"]],
    ["spaces may begin a line", `${"x".repeat(80)}   y`, ["x".repeat(80), "   y"]],
    ["long words break anywhere", "x".repeat(170), ["x".repeat(80), "x".repeat(80), "x".repeat(10)]],
    ["words break after a hyphen", `${"x ".repeat(36)}well-known`, [`${"x ".repeat(36)}well-`, "known"]],
    ["a minus is no hyphen", `${"x ".repeat(38)}1-2-3`, ["x ".repeat(38), "1-2-3"]],
    ["words break about a dash", `${"x ".repeat(38)}ab--cd`, [`${"x ".repeat(38)}ab--`, "cd"]],
    ["characters beyond U+FFFF stay whole", `x${"😀".repeat(41)}`, [`x${"😀".repeat(39)}`, "😀😀"]],
  ])("%s", (_what, text, lines) => {
    expect(wrapLines(text)).toEqual(lines);
  });

  it("contain the whole text", () => {
    const word = fc.constantFrom(
      "a",
      "well-known",
      "--",
      " ",
      "\t",
      "é😀",
      "x".repeat(90),
      "-".repeat(90),
      "a-b-c-".repeat(20),
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 60 }), (words) => {
        const text = words.join("");
        const lines = wrapLines(text);
        expect(lines.join("")).toBe(text);
        expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(WIDTH);
      }),
    );
  });

  it.each(["a", "-", "a-", "ab-", " ", "a b ", "--a", "【1†a】"])("need linear work for %o", async (piece) => {
    const text = piece.repeat(40_000 / piece.length);
    expect(await charactersTouched(() => wrapLines(text))).toBeLessThan(100 * text.length);
  });
});

describe("tool definitions", () => {
  /** Digests of what openai/harmony's own `get_tool_namespace_config` gives as JSON. */
  it.each([
    ["browser", BROWSER_NAMESPACE, "c48fd6e8a05546adb264bb4ec265617542140d1af5c69ed34f055e8c34ec76c1"],
    ["python", PYTHON.namespace, "a31e8401b861d2a582e19506070595937e95666a40487b777d2ca50daac69312"],
  ])("of %s are exactly openai/harmony's", async (_name, namespace, digest) => {
    const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(namespace)));
    expect(new Uint8Array(bytes).toHex()).toBe(digest);
  });

  it("have valid function names", () => {
    expect([...BROWSER_FUNCTIONS, ...(CONTAINER.functions ?? [])].map(({ name }) => name)).toEqual([
      "browser_search",
      "browser_open",
      "browser_find",
      "container_exec",
    ]);
  });
});
